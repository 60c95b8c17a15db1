/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The headers of a shared library are read here only as far as the check needs; the loader checks
 * less of them than it should. Every offset and size is from the file, and is compared with what
 * there is before it is used.
 */
#include <elf.h>
#include <string.h>

#include "pytorch/package.h"

struct code {
    unsigned char *bytes;
    size_t n;
    Elf64_Ehdr head;
};

static TRITONSERVER_Error *damaged_code(const char *what)
{
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "its code is no shared library: %s", what);
}

static bool is_within(const struct code *c, uint64_t offset, uint64_t size)
{
    return offset <= c->n && size <= c->n - offset;
}

/* ELF's number of a machine; 0: unknown. */
static uint16_t number_machine(const char *name)
{
    static const struct {
        const char *name;
        uint16_t number;
    } machines[] = {{"x86_64", EM_X86_64},
                    {"aarch64", EM_AARCH64},
                    {"riscv64", EM_RISCV},
                    {"ppc64le", EM_PPC64}};

    for (size_t i = 0; i < sizeof(machines) / sizeof(*machines); i++)
        if (strcmp(machines[i].name, name) == 0)
            return machines[i].number;
    return 0;
}

static TRITONSERVER_Error *check_elf_head(struct code *c, const char *machine)
{
    uint16_t number = number_machine(machine);

    if (c->n < sizeof(c->head))
        return damaged_code("it is too short");
    memcpy(&c->head, c->bytes, sizeof(c->head));
    if (memcmp(c->head.e_ident, ELFMAG, SELFMAG) != 0)
        return damaged_code("it does not begin as one");
    if (c->head.e_ident[EI_CLASS] != ELFCLASS64 || c->head.e_ident[EI_DATA] != ELFDATA2LSB)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "its code is not for processors of 64 bits that have the lowest byte "
                             "of a number first");
    if (number != 0 && c->head.e_machine != number)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "its code is for the processors with ELF's number %u, and this is %s",
                             (unsigned int)c->head.e_machine, machine);
    if (c->head.e_type != ET_DYN || c->head.e_phentsize != sizeof(Elf64_Phdr) ||
        !is_within(c, c->head.e_phoff, (uint64_t)c->head.e_phnum * sizeof(Elf64_Phdr)))
        return damaged_code("its headers lie outside of it");
    return NULL;
}

static Elf64_Phdr read_segment(const struct code *c, size_t i)
{
    Elf64_Phdr segment;

    memcpy(&segment, c->bytes + c->head.e_phoff + i * sizeof(segment), sizeof(segment));
    return segment;
}

/* Finds what lies at an address when the library is loaded. */
static bool find_address(const struct code *c, uint64_t address, uint64_t size, uint64_t *ret_at)
{
    for (size_t i = 0; i < c->head.e_phnum; i++) {
        Elf64_Phdr s = read_segment(c, i);

        if (s.p_type == PT_LOAD && address >= s.p_vaddr && address - s.p_vaddr <= s.p_filesz &&
            size <= s.p_filesz - (address - s.p_vaddr)) {
            *ret_at = s.p_offset + (address - s.p_vaddr);
            return true;
        }
    }
    return false;
}

/* All segments lie in the file; one says what the loader has to do. */
static TRITONSERVER_Error *find_dynamic(const struct code *c, Elf64_Phdr *ret_dynamic)
{
    bool found = false;

    for (size_t i = 0; i < c->head.e_phnum; i++) {
        Elf64_Phdr s = read_segment(c, i);

        if ((s.p_type == PT_LOAD || s.p_type == PT_DYNAMIC) &&
            (!is_within(c, s.p_offset, s.p_filesz) || s.p_memsz < s.p_filesz))
            return damaged_code("a segment lies outside of it");
        if (s.p_type == PT_DYNAMIC) {
            *ret_dynamic = s;
            found = true;
        }
    }
    return found ? NULL : damaged_code("it has nothing for the loader");
}

/* ---- What it needs --------------------------------------------------------------------------- */

struct needs {
    uint64_t at, n; /* the entries for the loader */
    const char *names;
    uint64_t size; /* of the names */
};

static Elf64_Dyn read_dynamic(const struct code *c, const struct needs *needs, uint64_t i)
{
    Elf64_Dyn entry;

    memcpy(&entry, c->bytes + needs->at + i * sizeof(entry), sizeof(entry));
    return entry;
}

static TRITONSERVER_Error *find_names(const struct code *c, struct needs *needs)
{
    uint64_t address = 0, at;

    for (uint64_t i = 0; i < needs->n; i++) {
        Elf64_Dyn entry = read_dynamic(c, needs, i);

        if (entry.d_tag == DT_NULL)
            needs->n = i;
        else if (entry.d_tag == DT_STRTAB)
            address = entry.d_un.d_ptr;
        else if (entry.d_tag == DT_STRSZ)
            needs->size = entry.d_un.d_val;
    }
    if (!find_address(c, address, needs->size, &at) || needs->size == 0 ||
        c->bytes[at + needs->size - 1] != '\0')
        return damaged_code("its names lie outside of it");
    needs->names = (const char *)c->bytes + at;
    return NULL;
}

static bool is_of_gpus(const char *library)
{
    static const char *const prefixes[] = {"libtorch_cuda", "libc10_cuda", "libcuda",
                                           "libtorch_hip", "libtorch_xpu"};

    for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
        if (strncmp(library, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static TRITONSERVER_Error *check_needs(const struct code *c, const struct needs *needs)
{
    uint64_t cpu = UINT64_MAX;

    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < needs->n; i++) {
            Elf64_Dyn entry = read_dynamic(c, needs, i);
            const char *name;

            if (entry.d_tag != DT_NEEDED)
                continue;
            if (entry.d_un.d_val >= needs->size)
                return damaged_code("the name of a library lies outside of it");
            name = needs->names + entry.d_un.d_val;
            if (is_of_gpus(name))
                return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                                     "its code needs '%s', a library for GPUs", name);
            if (strcmp(name, "libtorch_cpu.so") == 0)
                cpu = entry.d_un.d_val;
            if (round == 1 && strcmp(name, "libtorch.so") == 0 && cpu != UINT64_MAX) {
                entry.d_un.d_val = cpu;
                memcpy(c->bytes + needs->at + i * sizeof(entry), &entry, sizeof(entry));
            }
        }
    }
    return NULL;
}

TRITONSERVER_Error *code_check(unsigned char *bytes, size_t n, const char *machine)
{
    struct code c = {.bytes = bytes, .n = n};
    struct needs needs = {0};
    Elf64_Phdr dynamic = {0};

    TRY(check_elf_head(&c, machine));
    TRY(find_dynamic(&c, &dynamic));
    needs.at = dynamic.p_offset;
    needs.n = dynamic.p_filesz / sizeof(Elf64_Dyn);
    TRY(find_names(&c, &needs));
    return check_needs(&c, &needs);
}
