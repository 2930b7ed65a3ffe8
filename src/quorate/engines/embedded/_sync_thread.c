/* SyncThread: pwrite and fdatasync of one file, off the loop and without the interpreter lock; and, once
 * that is done, maybe a send.
 *
 * A thread of Python's has to take the interpreter lock twice for a sync: to begin it and to tell of
 * its end.  A loop that is busy holds the lock, so every group commit waited until it had nothing else
 * to do, and the disk idled meanwhile.  This thread takes the lock never: `begin` wakes it, and it
 * writes four bytes into a pipe, which the loop reads from: 0, or the errno of a write or sync that
 * failed.
 *
 * While it is at work it may get a descriptor and bytes for it (`attach`): what a client is told that waits
 * for just this.  They are sent when all is well, without waiting, and after the report is in the pipe:
 * whoever has seen them can rely on the report being there.  `take_back` tells how much was sent, and sees
 * to it that no more is.
 *
 * A thread that sleeps takes 30 us to wake up, on another processor that slept.  Who knows that something
 * will be begun says so (`expect`), and does what it still has to do while the thread wakes up; that one
 * then looks out for a moment instead of going back to sleep.  It does so by itself, too, where one thing
 * has lately been begun right after the other; whoever else can use the processor gets it meanwhile.
 *
 * It knows nothing of journals.  `ThreadSync` (syncing.py) does the same where this is not compiled;
 * tests/unit/embedded/test_syncing.py holds both to it.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum wish { NOTHING, SYNC, END };

typedef struct {
    PyObject_HEAD
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wished;
    enum wish wish; /* under the mutex, as is all that follows */
    atomic_int has_wish; /* the same, for who looks without the mutex */
    int is_asleep;
    int is_expected; /* a wish will come at once */
    int is_running;
    int is_busy;    /* from `begin` until just before it is reported */
    pid_t process;  /* that has the thread: one forked from it has none, nor anybody who unlocks the mutex */
    int file;       /* what is written to and synced */
    int report;     /* the writing end of the pipe */
    PyObject *data; /* bytes that are being written, or were last: let go of by whoever has the lock */
    off_t offset;   /* where they go */
    int reply_to;   /* a socket; -1 if nothing is to be sent, or not any more */
    PyObject *reply; /* bytes for it, let go of as above */
    Py_ssize_t replied; /* how many were sent */
    unsigned long turn; /* how often something was begun */
    long pause_ns;      /* from an end to the next beginning, lately; the thread's own */
} SyncThread;

/* What is expected comes within some 20 us; what follows by itself, within 100. */
enum { LOOK_OUT_NS = 120 * 1000, PAUSE_NS_MAX = 1000 * 1000 };

static int32_t write_file(int file, const char *data, size_t length, off_t offset)
{
    while (length > 0) {
        ssize_t written = pwrite(file, data, length, offset);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            return errno;
        }
        if (written == 0)
            return EIO;
        data += written;
        length -= (size_t)written;
        offset += written;
    }
    return 0;
}

static int32_t sync_file(int file)
{
    int failed;
#if defined(__APPLE__)
    failed = fsync(file); /* its fdatasync is no part of the interface */
#else
    failed = fdatasync(file);
#endif
    /* Not again after EINTR either: what a sync has failed to write it may not report twice. */
    return failed ? errno : 0;
}

static void report(int fd, int32_t error)
{
    /* The loop made room in the pipe by reading the report before; only a signal can come between. */
    while (write(fd, &error, sizeof error) < 0 && errno == EINTR)
        ;
}

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* Python ignores SIGPIPE */
#endif

/* Under the mutex, so that whoever takes a reply back knows what became of it.  It waits for nothing.
 *
 * Since the report is out, the loop may have taken the reply back and begun the next, whose own must not
 * leave before that is synced: hence the turn. */
static void send_reply(SyncThread *self, unsigned long turn)
{
    pthread_mutex_lock(&self->mutex);
    if (self->reply_to >= 0 && self->turn == turn) {
        ssize_t sent = send(self->reply_to, PyBytes_AS_STRING(self->reply),
                            (size_t)PyBytes_GET_SIZE(self->reply), MSG_DONTWAIT | MSG_NOSIGNAL);
        /* Of an error the loop hears when it sends them itself. */
        self->replied = sent > 0 ? sent : 0;
        self->reply_to = -1;
    }
    pthread_mutex_unlock(&self->mutex);
}

static long since_ns(const struct timespec *begun)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long seconds = (long)(now.tv_sec - begun->tv_sec);
    return seconds > 1 ? 2000000000L : seconds * 1000000000L + now.tv_nsec - begun->tv_nsec;
}

static void look_out(SyncThread *self)
{
    struct timespec begun;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    while (!atomic_load(&self->has_wish) && since_ns(&begun) < LOOK_OUT_NS)
        sched_yield();
}

/* Mostly as long as the last ones. */
static void note_pause(SyncThread *self, long pause_ns)
{
    if (pause_ns > PAUSE_NS_MAX)
        pause_ns = PAUSE_NS_MAX;
    self->pause_ns += (pause_ns - self->pause_ns) / 4;
}

static enum wish wait_for_wish(SyncThread *self)
{
    struct timespec begun;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    if (self->pause_ns < LOOK_OUT_NS)
        look_out(self);
    pthread_mutex_lock(&self->mutex);
    while (self->wish == NOTHING) {
        if (self->is_expected) {
            self->is_expected = 0;
            pthread_mutex_unlock(&self->mutex);
            look_out(self);
            pthread_mutex_lock(&self->mutex);
        } else {
            self->is_asleep = 1;
            pthread_cond_wait(&self->wished, &self->mutex);
            self->is_asleep = 0;
        }
    }
    enum wish wish = self->wish;
    self->wish = NOTHING;
    self->is_expected = 0;
    atomic_store(&self->has_wish, 0);
    pthread_mutex_unlock(&self->mutex);
    note_pause(self, since_ns(&begun));
    return wish;
}

static void *run(void *argument)
{
    SyncThread *self = argument;
    for (;;) {
        enum wish wish = wait_for_wish(self);
        if (wish == END)
            return NULL;
        /* Nobody changes these before this was reported. */
        int32_t error = write_file(self->file, PyBytes_AS_STRING(self->data),
                                   (size_t)PyBytes_GET_SIZE(self->data), self->offset);
        if (!error)
            error = sync_file(self->file);
        pthread_mutex_lock(&self->mutex);
        if (error)
            self->reply_to = -1;
        int has_reply = self->reply_to >= 0;
        unsigned long turn = self->turn;
        self->is_busy = 0;
        pthread_mutex_unlock(&self->mutex);
        report(self->report, error);
        if (has_reply)
            send_reply(self, turn);
    }
}

static void tell(SyncThread *self, enum wish wish)
{
    pthread_mutex_lock(&self->mutex);
    self->wish = wish;
    atomic_store(&self->has_wish, 1);
    int is_asleep = self->is_asleep;
    pthread_mutex_unlock(&self->mutex);
    /* Not while the mutex is held: the thread would wake up only to wait for it. */
    if (is_asleep)
        pthread_cond_signal(&self->wished);
}

/* A thread of ours answers no signal: those are for the thread that Python handles them in. */
static int start(SyncThread *self)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&self->thread, NULL, run, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static int sync_thread_init(SyncThread *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"file", "report", NULL};
    if (self->is_running) {
        PyErr_SetString(PyExc_RuntimeError, "it runs already");
        return -1;
    }
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ii", names, &self->file, &self->report))
        return -1;
    pthread_mutex_init(&self->mutex, NULL);
    pthread_cond_init(&self->wished, NULL);
    self->wish = NOTHING;
    self->reply_to = -1;
    self->pause_ns = PAUSE_NS_MAX;
    self->process = getpid();
    int error = start(self);
    if (error) {
        errno = error;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    self->is_running = 1;
    return 0;
}

static void end(SyncThread *self)
{
    if (!self->is_running)
        return;
    self->is_running = 0;
    if (self->process != getpid())
        return;
    tell(self, END);
    Py_BEGIN_ALLOW_THREADS
    pthread_join(self->thread, NULL);
    Py_END_ALLOW_THREADS
    pthread_cond_destroy(&self->wished);
    pthread_mutex_destroy(&self->mutex);
}

static PyObject *sync_thread_begin(SyncThread *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyBytes_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "bytes and an offset are wanted");
        return NULL;
    }
    long long offset = PyLong_AsLongLong(args[1]);
    if (offset == -1 && PyErr_Occurred())
        return NULL;
    if (!self->is_running || self->process != getpid()) {
        PyErr_SetString(PyExc_RuntimeError,
                        "it has ended, or belongs to the process that this was forked from");
        return NULL;
    }
    pthread_mutex_lock(&self->mutex);
    int is_busy = self->is_busy || self->reply_to >= 0;
    if (!is_busy) {
        self->is_busy = 1;
        self->turn++;
        self->replied = 0;
    }
    pthread_mutex_unlock(&self->mutex);
    if (is_busy) {
        PyErr_SetString(PyExc_RuntimeError, "what was begun has not ended");
        return NULL;
    }
    Py_XSETREF(self->data, Py_NewRef(args[0]));
    self->offset = (off_t)offset;
    tell(self, SYNC);
    Py_RETURN_NONE;
}

static PyObject *sync_thread_expect(SyncThread *self, PyObject *Py_UNUSED(nothing))
{
    if (!self->is_running || self->process != getpid())
        Py_RETURN_NONE;
    pthread_mutex_lock(&self->mutex);
    int is_asleep = self->is_asleep;
    self->is_expected = is_asleep;
    pthread_mutex_unlock(&self->mutex);
    if (is_asleep)
        pthread_cond_signal(&self->wished);
    Py_RETURN_NONE;
}

static PyObject *sync_thread_attach(SyncThread *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyBytes_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "a descriptor and bytes are wanted");
        return NULL;
    }
    long descriptor = PyLong_AsLong(args[0]);
    if (descriptor == -1 && PyErr_Occurred())
        return NULL;
    if (!self->is_running || self->process != getpid())
        Py_RETURN_FALSE;
    pthread_mutex_lock(&self->mutex);
    int is_in_time = self->is_busy && self->reply_to < 0;
    PyObject *before = NULL;
    if (is_in_time) {
        self->reply_to = (int)descriptor;
        before = self->reply;
        self->reply = Py_NewRef(args[1]);
    }
    pthread_mutex_unlock(&self->mutex);
    Py_XDECREF(before);
    return PyBool_FromLong(is_in_time);
}

static PyObject *sync_thread_take_back(SyncThread *self, PyObject *Py_UNUSED(nothing))
{
    if (!self->is_running || self->process != getpid())
        return PyLong_FromLong(0);
    pthread_mutex_lock(&self->mutex);
    self->reply_to = -1;
    Py_ssize_t replied = self->replied;
    pthread_mutex_unlock(&self->mutex);
    return PyLong_FromSsize_t(replied);
}

static PyObject *sync_thread_close(SyncThread *self, PyObject *Py_UNUSED(nothing))
{
    end(self);
    Py_RETURN_NONE;
}

static void sync_thread_dealloc(SyncThread *self)
{
    end(self);
    Py_CLEAR(self->data);
    Py_CLEAR(self->reply);
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"begin", (PyCFunction)(void (*)(void))sync_thread_begin, METH_FASTCALL,
     "Write (data, offset) and sync the file; how it went is written into the pipe.  One at a time."},
    {"expect", (PyCFunction)sync_thread_expect, METH_NOARGS,
     "Something is begun within microseconds, very likely: wake up for it."},
    {"attach", (PyCFunction)(void (*)(void))sync_thread_attach, METH_FASTCALL,
     "Send (descriptor, bytes) if what was begun goes well.  False, if that is over already."},
    {"take_back", (PyCFunction)sync_thread_take_back, METH_NOARGS,
     "Have the reply not sent, if it was not; how many bytes of it were."},
    {"close", (PyCFunction)sync_thread_close, METH_NOARGS,
     "End the thread, after what is on its way."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "A thread that writes to one file and syncs it.  (file, report): descriptors, of which it owns neither."},
    {Py_tp_init, sync_thread_init},
    {Py_tp_dealloc, sync_thread_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "quorate.engines.embedded._sync_thread.SyncThread",
    .basicsize = sizeof(SyncThread),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

static int add_types(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    if (type == NULL)
        return -1;
    int failed = PyModule_AddObjectRef(module, "SyncThread", type);
    Py_DECREF(type);
    return failed;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, add_types},
    {0, NULL},
};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_sync_thread",
    .m_doc = "A thread that writes to a file and syncs it without the interpreter lock.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__sync_thread(void)
{
    return PyModuleDef_Init(&module);
}
