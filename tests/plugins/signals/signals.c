/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signals - a backend that reports which signals are blocked in its calls, and whether a signal can
 * end its children, and that crashes on request.
 *
 * The model has an input IN (INT32, one element: what to do) and an output OUT (one string): a JSON
 * document. It has the masks (blocked signals, hexadecimal, as in /proc/self/status) of the threads
 * that initialised the model and the instance and of the thread that executes, and the mask of a
 * child made by posix_spawn(). It also has the signals that ended children made by posix_spawn(),
 * fork() and vfork() after SIGTERM was sent to them. The masks at the end of instance and model are
 * lines on stdout.
 *
 * IN: 0 reports; 1 reads from NULL; 2 fills the stack. With the parameter `crash` of the model, its
 * initialisation reads from NULL.
 */
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "triton/core/tritonbackend.h"

extern char **environ;

struct masks {
    unsigned long long model, instance;
};

static void must(TRITONSERVER_Error *err)
{
    if (!err)
        return;
    fprintf(stderr, "signals: %s\n", TRITONSERVER_ErrorMessage(err));
    abort();
}

static unsigned long long blocked(void)
{
    unsigned long long bits = 0;
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    for (int i = 1; i <= 64; i++)
        bits |= sigismember(&set, i) > 0 ? 1ull << (i - 1) : 0;
    return bits;
}

/* ---- Children -------------------------------------------------------------------------------- */

static char sleep_name[] = "sleep", sleep_time[] = "600";
static char *const sleeps[] = {sleep_name, sleep_time, NULL};

static pid_t spawn(char *const argv[], int out_fd)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    posix_spawn_file_actions_init(&actions);
    if (out_fd >= 0)
        posix_spawn_file_actions_adddup2(&actions, out_fd, STDOUT_FILENO);
    int err = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return err ? -1 : pid;
}

/* As Python's subprocess does it. */
static pid_t start_by_vfork(void)
{
    pid_t pid = vfork();
    if (pid == 0) {
        execvp(sleeps[0], sleeps);
        _exit(127);
    }
    return pid;
}

static pid_t start_by_fork(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        execvp(sleeps[0], sleeps);
        _exit(127);
    }
    return pid;
}

/* Returns the signal that ended the child; 0: none did. Sends SIGTERM first, since the child may
 * ignore it. */
static int ended_by(pid_t pid)
{
    int status = 0;
    kill(pid, SIGTERM);
    for (int i = 0; i < 6000; i++) {
#ifdef __SANITIZE_THREAD__ /* it delays an early signal, and the child loses it */
        if (i % 100 == 99)
            kill(pid, SIGTERM);
#endif
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        usleep(10000);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return SIGKILL;
}

static void read_mask_of_child(char to[32])
{
    static char sed[] = "sed", quiet[] = "-n", script[] = "s/SigBlk:[^0-9a-f]*//p";
    static char path[] = "/proc/self/status";
    static char *const argv[] = {sed, quiet, script, path, NULL};
    int fds[2];
    snprintf(to, 32, "none");
    if (pipe(fds) != 0)
        return;
    pid_t pid = spawn(argv, fds[1]);
    close(fds[1]);
    ssize_t n = read(fds[0], to, 31);
    close(fds[0]);
    to[n > 0 ? n : 0] = '\0';
    to[strcspn(to, "\n")] = '\0';
    waitpid(pid, NULL, 0);
}

/* ---- What a request asks for ----------------------------------------------------------------- */

static int fill_stack(volatile char *before)
{
    volatile char more[4096];
    more[0] = before ? before[0] : 1;
    return more[0] ? fill_stack(more) + more[0] : 0;
}

static void crash(void)
{
    static int *volatile nothing;
    *nothing = 1;
}

static void tell(TRITONBACKEND_ModelInstance *instance, char *text, size_t room)
{
    struct masks *masks;
    char child[32];
    must(TRITONBACKEND_ModelInstanceState(instance, (void **)&masks));
    read_mask_of_child(child);
    snprintf(text, room,
             "{\"model\":\"%llx\",\"instance\":\"%llx\",\"execute\":\"%llx\",\"child\":\"%s\","
             "\"spawn\":%d,\"fork\":%d,\"vfork\":%d}",
             masks->model, masks->instance, blocked(), child, ended_by(spawn(sleeps, -1)),
             ended_by(start_by_fork()), ended_by(start_by_vfork()));
}

static int what_to_do(TRITONBACKEND_Request *request)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    TRITONBACKEND_Input *input;
    const void *at;
    uint64_t size;
    int64_t memory_id = 0;
    int what;
    must(TRITONBACKEND_RequestInput(request, "IN", &input));
    must(TRITONBACKEND_InputBuffer(input, 0, &at, &size, &memory, &memory_id));
    memcpy(&what, at, sizeof(what));
    return what;
}

static void answer(TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *request)
{
    static const int64_t shape[] = {1};
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    TRITONBACKEND_Response *response;
    TRITONBACKEND_Output *output;
    int64_t memory_id = 0;
    char text[512];
    char *to;

    int what = what_to_do(request);
    if (what == 1)
        crash();
    if (what == 2)
        fill_stack(NULL);
    tell(instance, text, sizeof(text));
    uint32_t length = (uint32_t)strlen(text);
    must(TRITONBACKEND_ResponseNew(&response, request));
    must(TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_BYTES, shape, 1));
    must(TRITONBACKEND_OutputBuffer(output, (void **)&to, length + 4, &memory, &memory_id));
    memcpy(to, &length, 4);
    memcpy(to + 4, text, length);
    must(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL));
    must(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    for (uint32_t i = 0; i < request_count; i++)
        answer(instance, requests[i]);
    return NULL;
}

/* ---- The backend's functions ----------------------------------------------------------------- */

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model)
{
    TRITONSERVER_Message *config;
    const char *json;
    size_t size;
    struct masks *masks = calloc(1, sizeof(*masks));
    must(TRITONBACKEND_ModelConfig(model, 1, &config));
    must(TRITONSERVER_MessageSerializeToJson(config, &json, &size));
    if (memmem(json, size, "\"crash\"", 7))
        crash();
    must(TRITONSERVER_MessageDelete(config));
    masks->model = blocked();
    must(TRITONBACKEND_ModelSetState(model, masks));
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *instance)
{
    TRITONBACKEND_Model *model;
    struct masks *masks;
    must(TRITONBACKEND_ModelInstanceModel(instance, &model));
    must(TRITONBACKEND_ModelState(model, (void **)&masks));
    masks->instance = blocked();
    must(TRITONBACKEND_ModelInstanceSetState(instance, masks));
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance *instance)
{
    (void)instance;
    printf("signals: the instance ends with %llx\n", blocked());
    fflush(stdout);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model)
{
    struct masks *masks;
    must(TRITONBACKEND_ModelState(model, (void **)&masks));
    free(masks);
    printf("signals: the model ends with %llx\n", blocked());
    fflush(stdout);
    return NULL;
}
