/* SyncThread: pwrite and fdatasync of one file, off the loop and without the interpreter lock.
 *
 * A thread of Python's has to take the interpreter lock twice for a sync: to begin it and to tell of
 * its end.  A loop that is busy holds the lock, so every group commit waited until it had nothing else
 * to do, and the disk idled meanwhile.  This thread takes the lock never: `begin` wakes it, and it
 * writes four bytes into a pipe, which the loop reads from: 0, or the errno of a write or sync that
 * failed.
 *
 * It knows nothing of journals.  `ThreadSync` (syncing.py) does the same where this is not compiled;
 * tests/unit/embedded/test_syncing.py holds both to it.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

enum wish { NOTHING, SYNC, END };

typedef struct {
    PyObject_HEAD
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wished;
    enum wish wish; /* under the mutex, as is all that follows */
    int is_running;
    int is_busy;    /* from `begin` until just before it is reported */
    pid_t process;  /* that has the thread: one forked from it has none, nor anybody who unlocks the mutex */
    int file;       /* what is written to and synced */
    int report;     /* the writing end of the pipe */
    PyObject *data; /* bytes that are being written, or were last: let go of by whoever has the lock */
    off_t offset;   /* where they go */
} SyncThread;

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

static void *run(void *argument)
{
    SyncThread *self = argument;
    for (;;) {
        pthread_mutex_lock(&self->mutex);
        while (self->wish == NOTHING)
            pthread_cond_wait(&self->wished, &self->mutex);
        enum wish wish = self->wish;
        self->wish = NOTHING;
        pthread_mutex_unlock(&self->mutex);
        if (wish == END)
            return NULL;
        /* Nobody changes these before this was reported. */
        int32_t error = write_file(self->file, PyBytes_AS_STRING(self->data),
                                   (size_t)PyBytes_GET_SIZE(self->data), self->offset);
        if (!error)
            error = sync_file(self->file);
        pthread_mutex_lock(&self->mutex);
        self->is_busy = 0;
        pthread_mutex_unlock(&self->mutex);
        report(self->report, error);
    }
}

static void tell(SyncThread *self, enum wish wish)
{
    pthread_mutex_lock(&self->mutex);
    self->wish = wish;
    pthread_mutex_unlock(&self->mutex);
    /* Not while the mutex is held: the thread would wake up only to wait for it. */
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
    int is_busy = self->is_busy;
    self->is_busy = 1;
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

static PyObject *sync_thread_close(SyncThread *self, PyObject *Py_UNUSED(nothing))
{
    end(self);
    Py_RETURN_NONE;
}

static void sync_thread_dealloc(SyncThread *self)
{
    end(self);
    Py_CLEAR(self->data);
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"begin", (PyCFunction)(void (*)(void))sync_thread_begin, METH_FASTCALL,
     "Write (data, offset) and sync the file; how it went is written into the pipe.  One at a time."},
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
