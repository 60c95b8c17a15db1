/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Digests of files by libcrypto. A file is read in portions, whatever its size.
 */
#include "checksum/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 20, MAX_ERROR = 8192 };

__attribute__((format(printf, 2, 3))) static TRITONSERVER_Error *
digest_error(TRITONSERVER_Error_Code code, const char *format, ...)
{
    char text[MAX_ERROR];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return TRITONSERVER_ErrorNew(code, text);
}

static TRITONSERVER_Error *open_regular(const char *path, int *ret_fd)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a FIFO does not wait */
    if (fd < 0)
        return digest_error(TRITONSERVER_ERROR_INVALID_ARG, "failed to open file '%s': %s", path,
                            strerror(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return digest_error(TRITONSERVER_ERROR_INVALID_ARG, "'%s' is not a regular file", path);
    }
    *ret_fd = fd;
    return NULL;
}

static bool add_all(EVP_MD_CTX *context, int fd, unsigned char *bytes, int *ret_errno)
{
    for (;;) {
        ssize_t n = read(fd, bytes, READ_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        *ret_errno = n < 0 ? errno : 0;
        if (n <= 0)
            return n == 0;
        if (EVP_DigestUpdate(context, bytes, (size_t)n) != 1)
            return false;
    }
}

static void print_digest(const unsigned char *bytes, unsigned int n, char *text)
{
    for (unsigned int i = 0; i < n; i++)
        snprintf(text + 2 * (size_t)i, 3, "%02x", bytes[i]);
}

static TRITONSERVER_Error *digest_open_file(const EVP_MD *type, int fd, const char *path,
                                            char text[DIGEST_MAX_TEXT])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int n = 0;
    int why = 0;
    unsigned char *bytes = malloc(READ_BYTES);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool fine = bytes && context && EVP_DigestInit_ex(context, type, NULL) == 1 &&
                add_all(context, fd, bytes, &why) && EVP_DigestFinal_ex(context, digest, &n) == 1;
    EVP_MD_CTX_free(context);
    free(bytes);
    if (!fine)
        return digest_error(TRITONSERVER_ERROR_INTERNAL, "failed to compute the digest of '%s': %s",
                            path, why ? strerror(why) : "libcrypto cannot do it");
    print_digest(digest, n, text);
    return NULL;
}

TRITONSERVER_Error *digest_file(enum checksum_algorithm algorithm, const char *path,
                                char text[DIGEST_MAX_TEXT])
{
    int fd = -1;
    TRITONSERVER_Error *err = open_regular(path, &fd);
    if (err)
        return err;
    err = digest_open_file(algorithm == CHECKSUM_MD5 ? EVP_md5() : EVP_sha256(), fd, path, text);
    close(fd);
    return err;
}
