/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libcuda.so.1 without a GPU: the functions that base/cuda.c looks for, with the
 * types of the driver's ABI. "Memory of a GPU" is an object of shm_open(), whose name stands in the
 * handle behind the letters FAKE. Its device address leads to pages that nobody may access, so that
 * code which uses it as an address of its own ends by SIGSEGV.
 *
 * There are two devices, or CONCH_FAKE_GPUS of them. Like the driver, the functions need a current
 * context. A copy of a part that the object does not have any more fails with "an illegal memory
 * access". Handles, contexts, streams and allocations in use are counted (fake_cuda_in_use()).
 *
 * Memory of cuMemAlloc() is on the heap of the process, where tests/tensorrt/fake_nvinfer.c
 * computes; FAKE_OFFSET is added to its addresses, so that other code cannot use it. Streams do at
 * once what they are asked for; that they are waited for before the memory is freed is not seen.
 * CONCH_FAKE_GPU_BYTES limits the memory that is allocated.
 *
 * Pinned memory is of the heap, too. With CONCH_FAKE_PINNED_ONLY the copies in streams take no
 * other memory of the host; with CONCH_FAKE_NO_PINNED there is none.
 *
 * A stream that is captured has calls of a library that computes (fake_cuda_record()), and nothing
 * else; each launch of the graph makes them again. CONCH_FAKE_NO_GRAPHS lets no capture succeed.
 *
 * A server finds it when its folder is in LD_LIBRARY_PATH; a test that has opened it by its path
 * finds it by its name, too.
 */
#include "cuda/fake_cuda.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_DEVICES = 2, N_MAPPED = 64, MAX_DEPTH = 4 };

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    ILLEGAL_ADDRESS = 700,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
};

struct handle {
    char bytes[64];
};

struct mapped {
    char *device, *host; /* the same bytes: as the driver numbers them, and where they are */
    size_t n_bytes;
    int fd;
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct mapped all[N_MAPPED];
static int contexts[N_DEVICES]; /* their addresses are the contexts; the values count users */
static atomic_int is_initialized;
static int n_streams, n_graphs; /* under mu */

/* One of cuMemAlloc(). */
struct block {
    struct block *next;
    size_t n_bytes;
    char bytes[] __attribute__((aligned(64)));
};
static struct block *blocks; /* under mu */
static size_t n_allocated;   /* under mu */

static __thread void *stack[MAX_DEPTH];
static __thread int depth;

/* fake_cuda_in_use - the handles that are open, and the users of contexts. */
int fake_cuda_in_use(void);
int fake_cuda_in_use(void)
{
    int n = 0;
    pthread_mutex_lock(&mu);
    for (int i = 0; i < N_MAPPED; i++)
        n += all[i].device != NULL;
    for (int i = 0; i < N_DEVICES; i++)
        n += contexts[i];
    for (const struct block *b = blocks; b; b = b->next)
        n++;
    n += n_streams + n_graphs;
    pthread_mutex_unlock(&mu);
    return n;
}

static int count_devices(void)
{
    const char *n = getenv("CONCH_FAKE_GPUS");
    return n ? atoi(n) : N_DEVICES;
}

int cuInit(unsigned int flags);
int cuInit(unsigned int flags)
{
    is_initialized = 1;
    return flags == 0 ? SUCCESS : INVALID_VALUE;
}

int cuDeviceGetCount(int *n);
int cuDeviceGetCount(int *n)
{
    *n = count_devices();
    return is_initialized ? SUCCESS : NOT_INITIALIZED;
}

int cuDeviceGet(int *device, int number);
int cuDeviceGet(int *device, int number)
{
    if (number < 0 || number >= count_devices())
        return INVALID_DEVICE;
    *device = number;
    return SUCCESS;
}

int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRetain(void **context, int device)
{
    pthread_mutex_lock(&mu);
    contexts[device]++;
    pthread_mutex_unlock(&mu);
    *context = &contexts[device];
    return SUCCESS;
}

int cuDevicePrimaryCtxRelease_v2(int device);
int cuDevicePrimaryCtxRelease_v2(int device)
{
    pthread_mutex_lock(&mu);
    int was = contexts[device]--;
    pthread_mutex_unlock(&mu);
    return was > 0 ? SUCCESS : INVALID_CONTEXT;
}

int cuCtxPushCurrent_v2(void *context);
int cuCtxPushCurrent_v2(void *context)
{
    if (!context || depth == MAX_DEPTH)
        return INVALID_CONTEXT;
    stack[depth++] = context;
    return SUCCESS;
}

int cuCtxPopCurrent_v2(void **context);
int cuCtxPopCurrent_v2(void **context)
{
    if (depth == 0)
        return INVALID_CONTEXT;
    *context = stack[--depth];
    return SUCCESS;
}

static int map_object(struct mapped *m, const char *name)
{
    struct stat object;
    m->fd = shm_open(name, O_RDWR, 0);
    if (m->fd < 0)
        return INVALID_HANDLE;
    fstat(m->fd, &object);
    m->n_bytes = (size_t)object.st_size;
    m->host = mmap(NULL, m->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    m->device = mmap(NULL, m->n_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return SUCCESS;
}

int cuIpcOpenMemHandle_v2(unsigned long long *base, struct handle handle, unsigned int flags);
int cuIpcOpenMemHandle_v2(unsigned long long *base, struct handle handle, unsigned int flags)
{
    if (depth == 0)
        return INVALID_CONTEXT;
    if (flags != 1)
        return INVALID_VALUE;
    if (memcmp(handle.bytes, "FAKE", 4) != 0 || !memchr(handle.bytes, 0, sizeof(handle.bytes)))
        return INVALID_HANDLE;
    int result = INVALID_HANDLE;
    pthread_mutex_lock(&mu);
    for (int i = 0; i < N_MAPPED; i++) {
        if (all[i].device)
            continue;
        result = map_object(&all[i], handle.bytes + 4);
        *base = (unsigned long long)all[i].device;
        break;
    }
    pthread_mutex_unlock(&mu);
    return result;
}

/* The mapping with these bytes; NULL: there is none. */
static struct mapped *find_locked(unsigned long long at, size_t n_bytes)
{
    for (int i = 0; i < N_MAPPED; i++) {
        unsigned long long base = (unsigned long long)all[i].device;
        if (base && at >= base && at - base <= all[i].n_bytes &&
            n_bytes <= all[i].n_bytes - (at - base))
            return &all[i];
    }
    return NULL;
}

int cuIpcCloseMemHandle(unsigned long long base);
int cuIpcCloseMemHandle(unsigned long long base)
{
    int result = INVALID_VALUE;
    pthread_mutex_lock(&mu);
    struct mapped *m = depth > 0 ? find_locked(base, 0) : NULL;
    if (m && base == (unsigned long long)m->device) {
        munmap(m->device, m->n_bytes);
        munmap(m->host, m->n_bytes);
        close(m->fd);
        *m = (struct mapped){0};
        result = SUCCESS;
    }
    pthread_mutex_unlock(&mu);
    return result;
}

int cuMemGetAddressRange_v2(unsigned long long *base, size_t *n_bytes, unsigned long long at);
int cuMemGetAddressRange_v2(unsigned long long *base, size_t *n_bytes, unsigned long long at)
{
    pthread_mutex_lock(&mu);
    struct mapped *m = depth > 0 ? find_locked(at, 0) : NULL;
    if (m) {
        *base = (unsigned long long)m->device;
        *n_bytes = m->n_bytes;
    }
    pthread_mutex_unlock(&mu);
    return m ? SUCCESS : INVALID_VALUE;
}

/* Where those bytes are; NULL: the object does not have them, or no context is current. */
static char *find_bytes(unsigned long long at, size_t n_bytes)
{
    struct stat object;
    char *found = NULL;
    pthread_mutex_lock(&mu);
    struct mapped *m = depth > 0 ? find_locked(at, n_bytes) : NULL;
    if (m) {
        size_t offset = (size_t)(at - (unsigned long long)m->device);
        fstat(m->fd, &object);
        if (offset + n_bytes <= (size_t)object.st_size)
            found = m->host + offset;
    }
    pthread_mutex_unlock(&mu);
    return found;
}

int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t n_bytes);
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t n_bytes)
{
    const char *bytes = find_bytes(from, n_bytes);
    if (!bytes)
        return ILLEGAL_ADDRESS;
    memcpy(to, bytes, n_bytes);
    return SUCCESS;
}

int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t n_bytes);
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t n_bytes)
{
    char *bytes = find_bytes(to, n_bytes);
    if (!bytes)
        return ILLEGAL_ADDRESS;
    memcpy(bytes, from, n_bytes);
    return SUCCESS;
}

/* ---- Memory and streams of the process ------------------------------------------------------- */

int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    *value = attribute == 75 ? 9 : device; /* compute capabilities 9.0 and 9.1 */
    return attribute == 75 || attribute == 76 ? SUCCESS : INVALID_VALUE;
}

/* What a capture records, a driver's graph and an executable one. */
struct graph {
    fake_cuda_call *call;
    void *arg;
    int n_users;
};

struct stream {
    struct graph *capture; /* NULL: none */
};

static bool is_captured(const void *stream)
{
    return stream && ((const struct stream *)stream)->capture;
}

int cuCtxGetStreamPriorityRange(int *least, int *greatest);
int cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return depth > 0 ? SUCCESS : INVALID_CONTEXT;
}

int cuStreamCreateWithPriority(void **stream, unsigned int flags, int priority);
int cuStreamCreateWithPriority(void **stream, unsigned int flags, int priority)
{
    if (depth == 0)
        return INVALID_CONTEXT;
    if (flags > 1 || priority > 0 || priority < -5)
        return INVALID_VALUE;
    *stream = calloc(1, sizeof(struct stream));
    pthread_mutex_lock(&mu);
    n_streams++;
    pthread_mutex_unlock(&mu);
    return SUCCESS;
}

int cuStreamDestroy_v2(void *stream);
int cuStreamDestroy_v2(void *stream)
{
    free(stream);
    pthread_mutex_lock(&mu);
    n_streams--;
    pthread_mutex_unlock(&mu);
    return depth > 0 ? SUCCESS : INVALID_CONTEXT;
}

int cuStreamSynchronize(void *stream);
int cuStreamSynchronize(void *stream)
{
    if (is_captured(stream))
        return CAPTURE_UNSUPPORTED;
    return depth > 0 && stream ? SUCCESS : INVALID_CONTEXT;
}

int cuMemAlloc_v2(unsigned long long *at, size_t n_bytes);
int cuMemAlloc_v2(unsigned long long *at, size_t n_bytes)
{
    const char *limit = getenv("CONCH_FAKE_GPU_BYTES");
    if (depth == 0)
        return INVALID_CONTEXT;
    if (n_bytes == 0)
        return INVALID_VALUE;
    pthread_mutex_lock(&mu);
    struct block *b = NULL;
    if (!limit || n_allocated + n_bytes <= strtoull(limit, NULL, 10))
        b = malloc(sizeof(*b) + n_bytes);
    if (b) {
        memset(b->bytes, 0xa5, n_bytes);
        b->n_bytes = n_bytes;
        b->next = blocks;
        blocks = b;
        n_allocated += n_bytes;
        *at = (unsigned long long)(size_t)b->bytes + FAKE_OFFSET;
    }
    pthread_mutex_unlock(&mu);
    return b ? SUCCESS : OUT_OF_MEMORY;
}

int cuMemFree_v2(unsigned long long at);
int cuMemFree_v2(unsigned long long at)
{
    pthread_mutex_lock(&mu);
    struct block **link = &blocks, *b;
    while (*link && (unsigned long long)(size_t)(*link)->bytes + FAKE_OFFSET != at)
        link = &(*link)->next;
    b = *link;
    if (b) {
        *link = b->next;
        n_allocated -= b->n_bytes;
    }
    pthread_mutex_unlock(&mu);
    free(b);
    return b && depth > 0 ? SUCCESS : INVALID_VALUE;
}

void *fake_cuda_bytes(unsigned long long at, size_t n_bytes)
{
    char *found = NULL;
    pthread_mutex_lock(&mu);
    for (struct block *b = blocks; b && !found; b = b->next) {
        unsigned long long base = (unsigned long long)(size_t)b->bytes + FAKE_OFFSET;
        if (at >= base && at - base <= b->n_bytes && n_bytes <= b->n_bytes - (at - base))
            found = b->bytes + (at - base);
    }
    pthread_mutex_unlock(&mu);
    return found;
}

/* ---- Pinned memory --------------------------------------------------------------------------- */

/* Of cuMemAllocHost(). */
struct pinned {
    struct pinned *next;
    char *at;
    size_t n_bytes;
};
static struct pinned *all_pinned; /* under mu */

int cuMemAllocHost_v2(void **at, size_t n_bytes);
int cuMemAllocHost_v2(void **at, size_t n_bytes)
{
    if (depth == 0)
        return INVALID_CONTEXT;
    if (getenv("CONCH_FAKE_NO_PINNED") || posix_memalign(at, 4096, n_bytes) != 0)
        return OUT_OF_MEMORY;
    memset(*at, 0x5a, n_bytes);
    struct pinned *p = malloc(sizeof(*p));
    pthread_mutex_lock(&mu);
    *p = (struct pinned){all_pinned, *at, n_bytes};
    all_pinned = p;
    pthread_mutex_unlock(&mu);
    return SUCCESS;
}

int cuMemFreeHost(void *at);
int cuMemFreeHost(void *at)
{
    pthread_mutex_lock(&mu);
    struct pinned **link = &all_pinned, *p;
    while (*link && (*link)->at != at)
        link = &(*link)->next;
    p = *link;
    if (p)
        *link = p->next;
    pthread_mutex_unlock(&mu);
    if (!p || depth == 0)
        return INVALID_VALUE;
    free(p->at);
    free(p);
    return SUCCESS;
}

/* Is a copy between a device and this memory of the host one that the test refuses? */
static bool is_refused(const char *at, size_t n_bytes)
{
    bool refused = getenv("CONCH_FAKE_PINNED_ONLY");
    pthread_mutex_lock(&mu);
    for (const struct pinned *p = all_pinned; refused && p; p = p->next)
        refused = at < p->at || at + n_bytes > p->at + p->n_bytes;
    pthread_mutex_unlock(&mu);
    return refused;
}

int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t n_bytes, void *stream);
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t n_bytes, void *stream)
{
    char *bytes = fake_cuda_bytes(to, n_bytes);
    if (depth == 0 || !stream)
        return INVALID_CONTEXT;
    if (is_captured(stream))
        return CAPTURE_UNSUPPORTED;
    if (!bytes || is_refused(from, n_bytes))
        return ILLEGAL_ADDRESS;
    memcpy(bytes, from, n_bytes);
    return SUCCESS;
}

int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t n_bytes, void *stream);
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t n_bytes, void *stream)
{
    const char *bytes = fake_cuda_bytes(from, n_bytes);
    if (depth == 0 || !stream)
        return INVALID_CONTEXT;
    if (is_captured(stream))
        return CAPTURE_UNSUPPORTED;
    if (!bytes || is_refused(to, n_bytes))
        return ILLEGAL_ADDRESS;
    memcpy(to, bytes, n_bytes);
    return SUCCESS;
}

int cuMemsetD8Async(unsigned long long at, unsigned char value, size_t n_bytes, void *stream);
int cuMemsetD8Async(unsigned long long at, unsigned char value, size_t n_bytes, void *stream)
{
    char *bytes = fake_cuda_bytes(at, n_bytes);
    if (depth == 0 || !stream)
        return INVALID_CONTEXT;
    if (is_captured(stream))
        return CAPTURE_UNSUPPORTED;
    if (!bytes)
        return ILLEGAL_ADDRESS;
    memset(bytes, value, n_bytes);
    return SUCCESS;
}

/* ---- Graphs ---------------------------------------------------------------------------------- */

static void drop_graph(struct graph *g)
{
    pthread_mutex_lock(&mu);
    n_graphs--;
    bool last = --g->n_users == 0;
    pthread_mutex_unlock(&mu);
    if (!last)
        return;
    free(g->arg);
    free(g);
}

bool fake_cuda_record(void *stream, fake_cuda_call *call, void *arg)
{
    if (!is_captured(stream))
        return false;
    if (!call)
        return true;
    struct graph *g = ((struct stream *)stream)->capture;
    free(g->arg);
    g->call = call;
    g->arg = arg;
    return true;
}

int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamBeginCapture_v2(void *stream, int mode)
{
    if (depth == 0 || !stream)
        return INVALID_CONTEXT;
    if (mode != 1 || is_captured(stream))
        return INVALID_VALUE;
    struct graph *g = calloc(1, sizeof(*g));
    g->n_users = 1;
    ((struct stream *)stream)->capture = g;
    pthread_mutex_lock(&mu);
    n_graphs++;
    pthread_mutex_unlock(&mu);
    return SUCCESS;
}

int cuStreamEndCapture(void *stream, void **graph);
int cuStreamEndCapture(void *stream, void **graph)
{
    *graph = NULL;
    if (!is_captured(stream))
        return INVALID_VALUE;
    struct graph *g = ((struct stream *)stream)->capture;
    ((struct stream *)stream)->capture = NULL;
    if (!g->call || getenv("CONCH_FAKE_NO_GRAPHS")) {
        drop_graph(g);
        return CAPTURE_INVALIDATED;
    }
    *graph = g;
    return SUCCESS;
}

int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags);
int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags)
{
    if (!graph || flags)
        return INVALID_VALUE;
    pthread_mutex_lock(&mu);
    n_graphs++;
    ((struct graph *)graph)->n_users++;
    pthread_mutex_unlock(&mu);
    *exec = graph;
    return SUCCESS;
}

int cuGraphLaunch(void *exec, void *stream);
int cuGraphLaunch(void *exec, void *stream)
{
    if (depth == 0 || !stream)
        return INVALID_CONTEXT;
    if (is_captured(stream))
        return CAPTURE_UNSUPPORTED;
    ((struct graph *)exec)->call(((struct graph *)exec)->arg);
    return SUCCESS;
}

int cuGraphExecDestroy(void *exec);
int cuGraphExecDestroy(void *exec)
{
    drop_graph(exec);
    return depth > 0 ? SUCCESS : INVALID_CONTEXT;
}

int cuGraphDestroy(void *graph);
int cuGraphDestroy(void *graph)
{
    drop_graph(graph);
    return SUCCESS;
}

int cuGetErrorString(int result, const char **text);
int cuGetErrorString(int result, const char **text)
{
    static const struct {
        int result;
        const char *text;
    } texts[] = {
        {SUCCESS, "no error"},
        {INVALID_VALUE, "invalid argument"},
        {OUT_OF_MEMORY, "out of memory"},
        {NOT_INITIALIZED, "initialization error"},
        {INVALID_DEVICE, "invalid device ordinal"},
        {INVALID_CONTEXT, "invalid device context"},
        {INVALID_HANDLE, "invalid resource handle"},
        {ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
        {CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"},
        {CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (texts[i].result == result) {
            *text = texts[i].text;
            return SUCCESS;
        }
    }
    *text = NULL;
    return INVALID_VALUE;
}
