/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program: options → server → frontends → a signal → drain → exit code.
 *
 * It is an embedder like any other: it uses only the public API, and conch.h for the frontends and
 * for models that load while the ports are open. Main owns start and stop, and waits in between;
 * signals, and the end of the loading, only wake it. Before main waits, while it reads options and
 * repositories, a signal ends the process as without a handler. Once it waits, only a second signal
 * does so at once.
 */
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "announce.h"
#include "base/compiler.h"
#include "check.h"
#include "command.h"
#include "conch/conch.h"
#include "create.h"
#include "exposure.h"
#include "notify.h"
#include "options.h"
#include "options_priv.h"
#include "program_log.h"
#include "show_config.h"
#include "triton/core/tritonserver.h"
#include "version.h"

enum {
    LAST_PAGE_MS = 1000, /* for metrics to end after all else has ended */
    TAKE_DOWN_MS = 2000, /* beyond the exit timeout: to free what has ended */
    LAST_LINES_MS = 500, /* for a log that is read too slowly */
    ONE_SIGNAL_MS = 200, /* signals within this time are one: timeout(1) sends it twice */
    CRASH_WITHIN_S = 5,
};

/* ---- messages ------------------------------------------------------------------------------- */

static void print_console_line(TRITONSERVER_LogLevel level, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Prints a line unchanged on the console. */
static void print_console_line(TRITONSERVER_LogLevel level, const char *fmt, ...)
{
    char *text;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    conch_log_print(level, text);
    free(text);
}

/* Ends an error on stderr: "error: <what>: <Code> - <message>". False if there was one. */
static bool passed_or_printed(TRITONSERVER_Error *error, const char *what)
{
    if (!error)
        return true;
    print_console_line(TRITONSERVER_LOG_ERROR, "error: %s: %s - %s", what,
                       TRITONSERVER_ErrorCodeString(error), TRITONSERVER_ErrorMessage(error));
    TRITONSERVER_ErrorDelete(error);
    return false;
}

/* The same in the log: "failed to <what>: <Code> - <message>". */
static bool worked_or_logged(TRITONSERVER_Error *error, const char *what)
{
    if (!error)
        return true;
    log_error("failed to %s: %s - %s", what, TRITONSERVER_ErrorCodeString(error),
              TRITONSERVER_ErrorMessage(error));
    TRITONSERVER_ErrorDelete(error);
    return false;
}

/* ---- signals --------------------------------------------------------------------------------- */

/*
 * No thread blocks a signal: a child that a backend starts has the mask of the thread that starts
 * it. So a handler may run on any thread, anywhere, and does nothing that depends on its thread.
 */

static sem_t events;
static atomic_bool waiting;      /* main waits, or is about to */
static atomic_int signal_number; /* the first that ends the program */
static atomic_ullong signal_ms;  /* … and its time; 0: none has come */
static atomic_bool hung_up;      /* the log file is to be reopened */
static bool has_terminal;        /* constant before there are handlers, as is … */
static pid_t program_pid;

static uint64_t start_ms; /* when the program began */

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Writes a handler's text to stderr, unless that is not read. */
static void write_stderr(const char *text, size_t length)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&p, 1, 0) > 0)
        (void)!write(STDERR_FILENO, text, length);
}

static void say_signal(int number, const char *more)
{
    static const char before[] = "Signal (", after[] = ") received";
    char line[128], *end = mempcpy(line, before, sizeof(before) - 1);
    if (number >= 10)
        *end++ = (char)('0' + number / 10);
    *end++ = (char)('0' + number % 10);
    end = mempcpy(end, after, sizeof(after) - 1);
    end = mempcpy(end, more, MIN(strlen(more), (size_t)(line + sizeof(line) - end)));
    write_stderr(line, (size_t)(end - line));
}

NORETURN static void end_at_once(int number)
{
    conch_log_await(LAST_LINES_MS);
    say_signal(number, " again: the program ends at once.\n");
    _exit(128 + number);
}

/*
 * Also in a child that a backend has just made, before it becomes another program: after vfork() it
 * even shares our memory.
 */
static void let_happen(int number)
{
    signal(number, SIG_DFL);
    raise(number); /* delivered when the handler has returned */
}

static void on_signal(int number)
{
    int saved = errno, none = 0;
    unsigned long long never = 0;
    if (!atomic_load(&waiting) || getpid() != program_pid) {
        let_happen(number);
        errno = saved;
        return;
    }
    atomic_compare_exchange_strong(&signal_ms, &never, now_ms());
    if (atomic_compare_exchange_strong(&signal_number, &none, number))
        sem_post(&events);
    else if (number != SIGHUP && now_ms() - atomic_load(&signal_ms) >= ONE_SIGNAL_MS)
        end_at_once(number);
    errno = saved;
}

/* Without a terminal SIGHUP means that log files are rotated. */
static void on_hangup(int number)
{
    int saved = errno;
    if (getpid() == program_pid) {
        atomic_store(&hung_up, true);
        sem_post(&events);
    } else {
        let_happen(number);
    }
    errno = saved;
}

/*
 * Prints the stack, then lets the crash happen. On a stack of its own, since the thread's may be
 * full; nothing here allocates. If the program is in a state in which even this hangs, the alarm
 * ends it.
 */
static void on_crash(int number)
{
    void *frames[64];
    signal(SIGALRM, SIG_DFL);
    alarm(CRASH_WITHIN_S);
    say_signal(number, ".\n");
    backtrace_symbols_fd(frames, backtrace(frames, ARRAY_SIZE(frames)), STDERR_FILENO);
    conch_log_await(LAST_LINES_MS);
    raise(number); /* SA_RESETHAND has restored the default */
}

/* SIGHUP comes from the terminal, if there is one; a user who ignores it (nohup) wants to
 * outlive that. */
static void catch_hangup(const struct sigaction *ends)
{
    struct sigaction reopens = {.sa_handler = on_hangup, .sa_flags = SA_RESTART}, before;
    int terminal = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
    has_terminal = terminal >= 0;
    if (!has_terminal) {
        sigaction(SIGHUP, &reopens, NULL);
        return;
    }
    close(terminal);
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(SIGHUP, ends, NULL);
}

static void catch_crashes(void)
{
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    static char stack[64 << 10]; /* main's; our other threads have their own */
    struct sigaction action = {.sa_handler = on_crash, .sa_flags = SA_ONSTACK | (int)SA_RESETHAND};
    struct sigaction before;
    stack_t none, ours = {.ss_sp = stack, .ss_size = sizeof(stack)};
    void *frame;

    backtrace(&frame, 1); /* loads its library now, not inside a handler */
    if (sigaltstack(NULL, &none) == 0 && (none.ss_flags & SS_DISABLE))
        sigaltstack(&ours, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(crashes); i++) {
        /* A sanitizer's own handler prints more than ours. */
        if (sigaction(crashes[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            sigaction(crashes[i], &action, NULL);
    }
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sem_init(&events, 0, 0);
    program_pid = getpid();
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    catch_hangup(&action);
    signal(SIGPIPE, SIG_IGN);
    catch_crashes();
}

/* ---- Events ---------------------------------------------------------------------------------- */

static atomic_bool loaded;
static TRITONSERVER_Error *load_error; /* set before `loaded` */

static void on_models_loaded(TRITONSERVER_Error *error, void *userp)
{
    (void)userp;
    load_error = error;
    atomic_store(&loaded, true);
    sem_post(&events);
}

/* Call it once the models are loaded, or the loading thread has ended. */
static TRITONSERVER_Error *take_load_error(void)
{
    TRITONSERVER_Error *error = load_error;
    load_error = NULL;
    return error;
}

/* The file may have been renamed: later lines go to a new file of the given name. */
static void reopen_log(const char *path)
{
    TRITONSERVER_ServerOptions *so = NULL;
    if (!*path) {
        log_info("Signal (%d) received, and there is no log file to be opened anew.", SIGHUP);
        return;
    }
    if (!worked_or_logged(TRITONSERVER_ServerOptionsNew(&so), "open the log file anew"))
        return;
    if (worked_or_logged(TRITONSERVER_ServerOptionsSetLogFile(so, path), "open the log file anew"))
        log_info("Signal (%d) received: the log file has been opened anew.", SIGHUP);
    TRITONSERVER_ErrorDelete(TRITONSERVER_ServerOptionsDelete(so));
}

/* Waits for an event, or until until_ms, and tells the service manager meanwhile that all loops
 * turn. */
static void await_event(TRITONSERVER_Server *server, uint64_t until_ms)
{
    static uint64_t notify_ms; /* when the manager is to be told next */
    uint64_t period_ms = notify_period_ms();
    if (!notify_ms)
        notify_ms = period_ms ? now_ms() + period_ms : UINT64_MAX;
    uint64_t next_ms = MIN(until_ms, notify_ms);
    struct timespec until = {.tv_sec = (time_t)(next_ms / 1000),
                             .tv_nsec = (long)(next_ms % 1000) * 1000000};
    if (next_ms == UINT64_MAX) {
        while (sem_wait(&events) != 0)
            ; /* EINTR: by another signal */
        return;
    }
    while (sem_clockwait(&events, CLOCK_MONOTONIC, &until) != 0 && errno == EINTR)
        ;
    if (now_ms() < notify_ms)
        return;
    notify_ms = now_ms() + period_ms;
    if (conch_server_loops_turned(server))
        notify_send("WATCHDOG=1");
}

static void take_hangup(const struct options *o)
{
    if (atomic_exchange(&hung_up, false))
        reopen_log(option_text(o, OPT_LOG_FILE));
}

/* Waits for a signal that ends the program. */
static void wait_for_signal(TRITONSERVER_Server *server, const struct options *o)
{
    while (!atomic_load(&signal_number)) {
        await_event(server, UINT64_MAX);
        take_hangup(o);
    }
}

/* Waits for the end of the load, or for such a signal, and tells what takes long. */
static void wait_for_load(TRITONSERVER_Server *server, const struct options *o)
{
    struct loading_watch watch = LOADING_WATCH_INIT;
    while (!atomic_load(&signal_number) && !atomic_load(&loaded)) {
        await_event(server, start_ms + watch.look_ms);
        take_hangup(o);
        if (!atomic_load(&loaded) && now_ms() >= start_ms + watch.look_ms)
            announce_loading(server, &watch, now_ms() - start_ms);
    }
}

/* ---- Polling the repositories ---------------------------------------------------------------- */

/* Mode poll: a thread polls the repositories again and again. */
struct follower {
    TRITONSERVER_Server *server;
    long seconds;
    bool runs;
    pthread_t thread;
    sem_t over;
};

static void *run_poll_mode(void *arg)
{
    struct follower *f = arg;
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    next.tv_sec += f->seconds;
    while (sem_clockwait(&f->over, CLOCK_MONOTONIC, &next) != 0) {
        if (errno != ETIMEDOUT)
            continue;
        worked_or_logged(TRITONSERVER_ServerPollModelRepository(f->server),
                         "poll model repository");
        clock_gettime(CLOCK_MONOTONIC, &next);
        next.tv_sec += f->seconds;
    }
    return NULL;
}

static void follower_start(struct follower *f, TRITONSERVER_Server *server, const struct options *o)
{
    f->server = server;
    f->seconds = option_int(o, OPT_REPOSITORY_POLL_SECS);
    bool live = false; /* otherwise it has no repositories */
    TRITONSERVER_ErrorDelete(TRITONSERVER_ServerIsLive(server, &live));
    if (strcasecmp(option_text(o, OPT_MODEL_CONTROL_MODE), "poll") != 0 || f->seconds == 0 || !live)
        return;
    sem_init(&f->over, 0, 0);
    int failed = pthread_create(&f->thread, NULL, run_poll_mode, f);
    f->runs = !failed;
    if (failed)
        log_error("failed to start a thread to poll the model repository: %s", strerror(failed));
}

/* Ends the polling; a load in progress goes on. */
static void follower_end(struct follower *f)
{
    if (f->runs)
        sem_post(&f->over);
}

static void follower_join(struct follower *f)
{
    if (f->runs)
        pthread_join(f->thread, NULL);
}

/* ---- start and stop ------------------------------------------------------------------------- */

static bool start_http(TRITONSERVER_Server *server, const struct options *o,
                       struct conch_http **ret_http)
{
    struct conch_http_options http;
    conch_http_options_init(&http);
    options_apply_http(o, &http);
    return worked_or_logged(conch_http_start(server, &http, ret_http), "start HTTP service");
}

static bool start_sagemaker(TRITONSERVER_Server *server, const struct options *o,
                            struct conch_http **ret_sagemaker)
{
    struct conch_http_options http;
    struct conch_sagemaker_options sagemaker;
    conch_http_options_init(&http);
    options_apply_sagemaker(o, &http);
    conch_sagemaker_options_init(&sagemaker);
    sagemaker.http = &http;
    return worked_or_logged(conch_sagemaker_start(server, &sagemaker, ret_sagemaker),
                            "start Sagemaker service");
}

static bool start_vertex_ai(TRITONSERVER_Server *server, const struct options *o,
                            struct conch_http **ret_vertex_ai)
{
    struct conch_http_options http;
    struct conch_vertex_ai_options vertex_ai;
    conch_http_options_init(&http);
    options_apply_vertex_ai(o, &http);
    conch_vertex_ai_options_init(&vertex_ai);
    vertex_ai.http = &http;
    vertex_ai.default_model = option_text(o, OPT_VERTEX_AI_DEFAULT_MODEL);
    return worked_or_logged(conch_vertex_ai_start(server, &vertex_ai, ret_vertex_ai),
                            "start Vertex AI service");
}

static bool start_grpc(TRITONSERVER_Server *server, const struct options *o,
                       struct conch_grpc **ret_grpc)
{
    struct conch_grpc_options grpc;
    conch_grpc_options_init(&grpc);
    options_apply_grpc(o, &grpc);
    return worked_or_logged(conch_grpc_start(server, &grpc, ret_grpc), "start GRPC service");
}

static bool start_metrics(TRITONSERVER_Server *server, const struct options *o,
                          struct conch_metrics **ret_metrics)
{
    struct conch_metrics_options metrics;
    conch_metrics_options_init(&metrics);
    options_apply_metrics(o, &metrics);
    return worked_or_logged(conch_metrics_start(server, &metrics, ret_metrics),
                            "start Metrics service");
}

static bool start_trace(TRITONSERVER_Server *server, const struct options *o,
                        struct conch_trace **ret_trace)
{
    struct conch_trace_options trace;
    conch_trace_options_init(&trace);
    options_apply_trace(o, &trace);
    bool worked =
        worked_or_logged(conch_trace_start(server, &trace, ret_trace), "configure tracing");
    free((void *)(uintptr_t)trace.settings);
    return worked;
}

/* The open ports. */
struct frontends {
    struct conch_trace *trace;
    struct conch_http *http, *sagemaker, *vertex_ai;
    struct conch_grpc *grpc;
    struct conch_metrics *metrics;
    struct follower follower;
};

static struct open_ports ports_of(const struct frontends *f)
{
    return (struct open_ports){
        .has_http = f->http != NULL,
        .has_grpc = f->grpc != NULL,
        .has_metrics = f->metrics != NULL,
        .has_sagemaker = f->sagemaker != NULL,
        .http = f->http ? conch_http_port(f->http) : 0,
        .grpc = f->grpc ? conch_grpc_port(f->grpc) : 0,
        .metrics = f->metrics ? conch_metrics_port(f->metrics) : 0,
    };
}

/* What is left of a time that began at from_ms. */
static uint64_t left_of(uint64_t from_ms, uint64_t timeout_ms)
{
    uint64_t used_ms = now_ms() - from_ms;
    return used_ms < timeout_ms ? timeout_ms - used_ms : 0;
}

/* All services begin to stop, so that none takes new work; then each is waited for. */
static void stop_services(struct frontends *f, uint64_t timeout_ms)
{
    uint64_t from_ms = now_ms();
    struct conch_http *of_http[] = {f->http, f->sagemaker, f->vertex_ai};
    for (size_t i = 0; i < ARRAY_SIZE(of_http); i++)
        conch_http_begin_stop(of_http[i]);
    conch_grpc_begin_stop(f->grpc);
    unsigned int n_cut = 0;
    for (size_t i = 0; i < ARRAY_SIZE(of_http); i++)
        n_cut += conch_http_stop(of_http[i], left_of(from_ms, timeout_ms));
    if (n_cut)
        log_info("Timeout 0: Found %u HTTP service connections", n_cut);
    n_cut = conch_grpc_stop(f->grpc, left_of(from_ms, timeout_ms));
    if (n_cut)
        log_info("Timeout 0: Found %u gRPC service connections and inference handlers", n_cut);
}

/*
 * Stops the services first, then the server, all within the one exit timeout, then the metrics,
 * which show what the stop waits for. False if the timeout did not suffice: then nothing may wait
 * for what still runs.
 */
static bool stop_serving(TRITONSERVER_Server *server, struct frontends *f, uint64_t timeout_ms)
{
    uint64_t from_ms = now_ms();
    follower_end(&f->follower);
    passed_or_printed(conch_server_stop_loading(server), "stopping server");
    stop_services(f, timeout_ms);
    conch_server_end_sequences(server); /* their clients' connections are closed */
    uint64_t left_ms = left_of(from_ms, timeout_ms);
    if (!worked_or_logged(
            TRITONSERVER_ServerSetExitTimeout(server, (unsigned int)((left_ms + 999) / 1000)),
            "set exit timeout") ||
        !worked_or_logged(TRITONSERVER_ServerStop(server), "stop server"))
        return false;
    follower_join(&f->follower);
    conch_metrics_stop(f->metrics, LAST_PAGE_MS);
    conch_trace_stop(f->trace);
    return true;
}

/* Something that cannot be ended still runs: its memory may not be freed. */
NORETURN static void give_up(void)
{
    conch_log_await(LAST_LINES_MS);
    fflush(NULL);
    _exit(1);
}

/* The end of the server, on a thread that main need not wait for. */
struct ending {
    TRITONSERVER_Server *server;
    struct frontends *frontends;
    uint64_t timeout_ms;
    sem_t over;
    bool fine;
};

static void *stop_and_delete_server(void *arg)
{
    struct ending *e = arg;
    if (!stop_serving(e->server, e->frontends, e->timeout_ms))
        give_up();
    e->fine = passed_or_printed(TRITONSERVER_ServerDelete(e->server), "deleting server");
    sem_post(&e->over);
    return NULL;
}

/*
 * Whatever hangs (the finalisation of a model, a library), a stop lasts at most as long as the exit
 * timeout, and some time to free what has ended.
 */
static bool end_in_time(TRITONSERVER_Server *server, struct frontends *f, uint64_t timeout_ms)
{
    struct ending e = {.server = server, .frontends = f, .timeout_ms = timeout_ms};
    uint64_t until_ms = now_ms() + timeout_ms + TAKE_DOWN_MS;
    struct timespec until = {.tv_sec = (time_t)(until_ms / 1000),
                             .tv_nsec = (long)(until_ms % 1000) * 1000000};
    pthread_t thread;

    sem_init(&e.over, 0, 0);
    if (pthread_create(&thread, NULL, stop_and_delete_server, &e) != 0) {
        stop_and_delete_server(&e); /* no memory for a thread: late is better than never */
        return e.fine;
    }
    while (sem_clockwait(&e.over, CLOCK_MONOTONIC, &until) != 0) {
        if (errno == EINTR)
            continue;
        conch_server_log_unended(server);
        log_error("failed to stop server: Exit timeout expired. Exiting immediately.");
        give_up();
    }
    pthread_join(thread, NULL);
    return e.fine;
}

static bool apply_options(const struct options *o, bool of_log, TRITONSERVER_ServerOptions *so)
{
    const char *what = NULL;
    TRITONSERVER_Error *error = options_apply(o, of_log, so, &what);
    return passed_or_printed(error, what);
}

static bool create_server(const struct options *o, TRITONSERVER_Server **ret_server)
{
    TRITONSERVER_ServerOptions *so = NULL;
    if (!passed_or_printed(TRITONSERVER_ServerOptionsNew(&so), "creating server options"))
        return false;
    bool ok = apply_options(o, true, so);
    /* Deprecations are printed where Triton prints them, the rest is logged. */
    for (size_t i = 0; ok && i < o->n_notices; i++) {
        if (strncmp(o->notices[i], "Warning:", 8) == 0)
            fprintf(stderr, "%s\n", o->notices[i]);
        else
            log_warn("%s", o->notices[i]);
    }
    ok = ok && apply_options(o, false, so) &&
         passed_or_printed(conch_server_new(ret_server, so), "creating server");
    passed_or_printed(TRITONSERVER_ServerOptionsDelete(so), "deleting server options");
    return ok;
}

static bool open_ports(TRITONSERVER_Server *server, const struct options *o, struct frontends *f)
{
    char exposed[512];
    if (!start_trace(server, o, &f->trace))
        return false;
    if (option_bool(o, OPT_ALLOW_GRPC) && !start_grpc(server, o, &f->grpc))
        return false;
    if (option_bool(o, OPT_ALLOW_HTTP) && !start_http(server, o, &f->http))
        return false;
    if (option_bool(o, OPT_ALLOW_SAGEMAKER) && !start_sagemaker(server, o, &f->sagemaker))
        return false;
    if (option_bool(o, OPT_ALLOW_METRICS) && !start_metrics(server, o, &f->metrics))
        return false;
    const struct open_ports ports = ports_of(f);
    announce_services(o, &ports);
    exposure_warning(o, exposed, sizeof(exposed));
    if (*exposed)
        log_warn("%s", exposed);
    exposure_warning_of_pages(o, exposed, sizeof(exposed));
    if (*exposed)
        log_warn("%s", exposed);
    return true;
}

/*
 * A failed start ends with its reasons: what the stop logs from here on is only what goes wrong in
 * it, unless details are wanted.
 */
static void end_with_reasons(const struct options *o)
{
    TRITONSERVER_ServerOptions *so = NULL;
    if (option_int(o, OPT_LOG_VERBOSE) > 0)
        return;
    if (!passed_or_printed(TRITONSERVER_ServerOptionsNew(&so), "creating server options"))
        return;
    passed_or_printed(TRITONSERVER_ServerOptionsSetLogInfo(so, false), "setting log info enabled");
    TRITONSERVER_ErrorDelete(TRITONSERVER_ServerOptionsDelete(so));
}

/*
 * Serves from the first model to the signal that ends the program. The ports are open before the
 * models load, so that clients can distinguish a server that loads from a dead one.
 */
static bool serve_until_signal(TRITONSERVER_Server *server, const struct options *o,
                               struct frontends *f)
{
    bool after_load = option_bool(o, OPT_LISTEN_AFTER_LOAD);

    if (!after_load && !open_ports(server, o, f))
        return false;
    if (!passed_or_printed(conch_server_load(server, on_models_loaded, NULL), "creating server"))
        return false;
    notify_send("STATUS=Loading models");
    wait_for_load(server, o);
    if (!atomic_load(&signal_number)) {
        if (!passed_or_printed(take_load_error(), "creating server")) {
            end_with_reasons(o);
            return false;
        }
        if (after_load && !open_ports(server, o, f))
            return false;
        /* Its default model must be ready. */
        if (option_bool(o, OPT_ALLOW_VERTEX_AI) && !start_vertex_ai(server, o, &f->vertex_ai))
            return false;
        follower_start(&f->follower, server, o);
        const struct open_ports ports = ports_of(f);
        announce_ready(server, o, &ports, now_ms() - start_ms);
        notify_send("READY=1\nSTATUS=Serving");
        wait_for_signal(server, o);
    }
    notify_send("STOPPING=1\nSTATUS=Answering the last requests");
    print_console_line(TRITONSERVER_LOG_INFO, "Signal (%d) received.", atomic_load(&signal_number));
    return true;
}

/* Each connection is a descriptor; the usual limit exists for programs that use select(). */
static void raise_descriptor_limit(struct rlimit *ret_before)
{
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    *ret_before = limit;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void log_descriptor_limit(const struct rlimit *before)
{
    struct rlimit now;
    if (getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur != before->rlim_cur)
        log_verbose("descriptors: at most %ju instead of %ju", (uintmax_t)now.rlim_cur,
                    (uintmax_t)before->rlim_cur);
}

static int run_server(const struct options *o)
{
    TRITONSERVER_Server *server = NULL;
    struct frontends frontends = {0};
    struct rlimit before;

    notify_init();
    catch_signals();
    if (option_bool(o, OPT_ALLOW_CLIENT_SHM))
        conch_catch_region_faults();
    raise_descriptor_limit(&before);
    conch_exit_when_exhausted();
    if (!create_server(o, &server))
        return 1;
    log_descriptor_limit(&before);
    atomic_store(&waiting, true);
    bool fine = serve_until_signal(server, o, &frontends);
    fine = end_in_time(server, &frontends, (uint64_t)option_int(o, OPT_EXIT_TIMEOUT_SECS) * 1000) &&
           fine;
    TRITONSERVER_ErrorDelete(take_load_error()); /* the error that it was stopped meanwhile */
    return fine ? 0 : 1;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

int mallctl(const char *name, void *old, size_t *old_size, void *fresh, size_t fresh_size)
    __attribute__((weak));

/*
 * jemalloc's first settings; the environment's MALLOC_CONF comes after them. By default it has four
 * arenas for each processor: on 64 processors they would cost 22 MiB before there is a model.
 * Requests allocate nothing, so a few are enough, on any machine.
 */
extern const char *malloc_conf __attribute__((visibility("default")));
const char *malloc_conf = "narenas:8";

/*
 * jemalloc makes an arena when a thread first needs one; if there is no memory for it, the thread
 * crashes inside its first malloc(). So all arenas are made before there are threads.
 */
static bool make_arenas(void)
{
    unsigned int n = 0;
    size_t size = sizeof(n);
    if (!mallctl)
        return true;
    bool made = mallctl("opt.narenas", &n, &size, NULL, 0) == 0;
    for (unsigned int i = n; made && i-- > 0;) /* the last one, 0, is main's */
        made = mallctl("thread.arena", NULL, NULL, &i, sizeof(i)) == 0;
    return made;
}

/*
 * glibc's own allocator is idle beside jemalloc, but libraries call malloc_trim() and mallopt(), as
 * OpenVINO does when it frees a model. The first of these calls prepares that allocator, and a
 * second thread that comes meanwhile crashes in it. So it is prepared before there are threads.
 */
static void prepare_idle_allocator(void)
{
    if (mallctl)
        (void)malloc_trim(0);
}

/* ---- the command line ----------------------------------------------------------------------- */

/* Was the program started under Triton's name? Its start scripts and tests expect Triton's
 * command line. */
static bool is_tritonserver(const char *program)
{
    const char *slash = strrchr(program, '/');
    return strcmp(slash ? slash + 1 : program, "tritonserver") == 0;
}

/* Prints the fault of the command line: with the usage as Triton does, otherwise on one line. */
static void print_wrong(const char *wrong, bool as_tritonserver)
{
    if (as_tritonserver) {
        options_help(stderr, "tritonserver", "all");
        fprintf(stderr, "\n%s\n", wrong);
        return;
    }
    command_print_wrong(NULL, wrong);
}

static int print_help_topic(const char *topic)
{
    if (options_help(stdout, "conch", topic))
        return 0;
    char *topics = options_topics();
    char *wrong = option_message("there is no topic '%s' of --help; there are: %s", topic, topics);
    command_print_wrong(NULL, wrong);
    free(wrong);
    free(topics);
    return 1;
}

/* Parses the options and does what they say. @wrong  a fault that was found before; taken */
static int run_options(int argc, char **argv, char *wrong, bool as_tritonserver)
{
    struct options o = {0};
    int code = 0;
    if (!wrong)
        wrong = options_parse(&o, argc, argv);
    if (wrong) {
        print_wrong(wrong, as_tritonserver);
        code = 1;
    } else if (o.values[OPT_HELP].given) { /* conch's own --help is no option any more */
        options_help(stderr, "tritonserver", "all");
        code = 1;
    } else if (o.values[OPT_VERSION].given) {
        const char *backends = option_text(&o, OPT_BACKEND_DIRECTORY);
        const struct option_value *settings = &o.values[OPT_BACKEND_CONFIG];
        version_print(backends ? backends : options_backend_directory(), settings->list,
                      settings->n_list);
    } else if (o.values[OPT_PRINT_CONFIG].given) {
        options_print_config(stdout, &o, options_backend_directory(), options_cache_directory());
    } else {
        code = run_server(&o);
    }
    free(wrong);
    options_done(&o);
    return code;
}

static int run_words(int argc, char **argv)
{
    struct command c;
    int code = 1;
    char *wrong = command_read(&c, argc, argv);
    if (!wrong && c.kind == COMMAND_BRIEF)
        command_print_brief(); /* and nothing is served, so that a script sees a failure */
    else if (!wrong && c.kind == COMMAND_HELP)
        code = print_help_topic(c.topic);
    else
        code = run_options(c.argc, c.argv, wrong, false);
    command_done(&c);
    return code;
}

int main(int argc, char **argv)
{
    start_ms = now_ms();
    if (!make_arenas()) { /* any allocation would crash */
        static const char text[] = "conch: there is not enough memory to start\n";
        write_stderr(text, sizeof(text) - 1);
        _exit(1);
    }
    prepare_idle_allocator();
    if (argc > 0 && is_tritonserver(argv[0]))
        return run_options(argc, argv, NULL, true);
    if (argc > 1 && strcmp(argv[1], "check") == 0)
        return check_main(argc - 1, argv + 1, options_backend_directory());
    if (argc > 1 && strcmp(argv[1], "config") == 0)
        return show_config_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "new") == 0)
        return create_main(argc - 1, argv + 1);
    return run_words(argc, argv);
}
