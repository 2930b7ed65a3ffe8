/* SyncThread: a thread that writes to one file and syncs it, without the interpreter lock, and then sends
 * replies to clients.
 *
 * A Python thread has to take the interpreter lock twice for a sync: to begin it and to report its end.
 * A busy loop holds the lock, so every group commit would wait until the loop has nothing else to do, with
 * the disk idle meanwhile.  This thread never takes the lock.  `begin` wakes it; `outcome` returns the
 * result, and a byte in a pipe wakes the loop to ask for it, unless it has asked already.
 *
 * `begin` and later calls may give it descriptors with bytes for each (`Sending`): the replies to clients
 * that wait for this sync.  They are sent if the sync succeeds, without blocking, and after its outcome is
 * known: a client that has read its reply finds the outcome settled.  `take_back` returns how much of a reply
 * was sent, and stops the rest.
 *
 * Several threads may be at work, on frames that count only in their order (`SyncOrder`).  The replies of a
 * frame are sent when the outcome of that frame and of all before it is known, by the thread that is the last
 * of these to finish.  Behind a frame that failed, nothing is sent.  The replies of two frames may be sent at
 * the same time, so a caller with bytes for one socket in both withholds the second until the first is settled.
 *
 * A sleeping thread takes a while to wake up on an idle processor.  So a caller that knows that it will call
 * `begin` soon calls `expect` first, and prepares the write while the thread wakes up.  The thread then polls
 * for a moment instead of going back to sleep, unless it slept on the caller's own processor.  It also polls
 * after a write, if lately each write was begun soon after the one before.  While it polls, it yields the
 * processor to any other thread.
 *
 * `ThreadSync` (file_sync.py) does the same where this is not compiled; one set of tests holds for both.
 */

#define PY_SSIZE_T_CLEAN
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getcpu */
#endif
#include <Python.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* Made when the module is loaded, and never freed. */
static PyTypeObject *sending_type, *sync_order_type, *sync_thread_type;

/* -- Sending: bytes for a socket, sent by a thread or taken back ----------------------------------------- */

enum sending_state { WAITING, BUSY, OVER };

typedef struct {
    PyObject_HEAD
    atomic_int state;
    int descriptor;
    PyObject *data;
    Py_ssize_t sent; /* valid once the state is OVER */
} Sending;

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* Python ignores SIGPIPE */
#endif

static void send_now(Sending *self)
{
    int state = WAITING;
    if (!atomic_compare_exchange_strong(&self->state, &state, BUSY))
        return;
    ssize_t sent = send(self->descriptor, PyBytes_AS_STRING(self->data),
                        (size_t)PyBytes_GET_SIZE(self->data), MSG_DONTWAIT | MSG_NOSIGNAL);
    /* An error is not reported here: the loop gets it when it sends the rest itself. */
    self->sent = sent > 0 ? sent : 0;
    atomic_store(&self->state, OVER);
}

/* (A function, since calling a type takes longer than everything else that is done with a Sending.) */
static PyObject *make_sending(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyBytes_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "a descriptor and bytes are wanted");
        return NULL;
    }
    long descriptor = PyLong_AsLong(args[0]);
    if (descriptor < 0 || descriptor > INT_MAX) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "that is no descriptor");
        return NULL;
    }
    Sending *self = (Sending *)sending_type->tp_alloc(sending_type, 0);
    if (self == NULL)
        return NULL;
    self->descriptor = (int)descriptor;
    self->data = Py_NewRef(args[1]);
    return (PyObject *)self;
}

static PyObject *sending_take_back(Sending *self, PyObject *Py_UNUSED(nothing))
{
    int state = WAITING;
    if (!atomic_compare_exchange_strong(&self->state, &state, OVER)) {
        /* A send that does not block takes microseconds. */
        while (atomic_load(&self->state) != OVER)
            sched_yield();
    }
    return PyLong_FromSsize_t(self->sent);
}

static void sending_dealloc(Sending *self)
{
    Py_CLEAR(self->data);
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

/* -- SyncOrder: the order in which frames count ------------------------------------------------------------ */

enum { FRAMES_MAX = 8 }; /* begun, with an outcome that was not reported yet */

typedef struct {
    Sending **all;
    size_t count, room;
} Sendings;

typedef struct {
    PyObject_HEAD
    pthread_mutex_t mutex; /* for all that follows */
    unsigned long begun;   /* the number of the frame that was begun last */
    unsigned long ended;   /* up to this one, all are known to be synced */
    int is_synced[FRAMES_MAX];
    Sendings of_frame[FRAMES_MAX];
    Sendings spent; /* to be freed by a thread that holds the interpreter lock */
} SyncOrder;

/* Returns 0 if there is no memory: what is not sent here, the loop sends. */
static int append(Sendings *to, Sending *sending)
{
    if (to->count == to->room) {
        size_t room = to->room ? 2 * to->room : 16;
        Sending **all = realloc(to->all, room * sizeof *all);
        if (all == NULL)
            return 0;
        to->all = all;
        to->room = room;
    }
    to->all[to->count++] = sending;
    return 1;
}

static void let_go(Sendings *those)
{
    for (size_t at = 0; at < those->count; at++)
        Py_DECREF(those->all[at]);
    free(those->all);
    *those = (Sendings){0};
}

/* With the interpreter lock. */
static void let_go_of_spent(SyncOrder *order)
{
    pthread_mutex_lock(&order->mutex);
    Sendings spent = order->spent;
    order->spent = (Sendings){0};
    pthread_mutex_unlock(&order->mutex);
    let_go(&spent);
}

/* Takes over the reference and returns 1, unless the frame has ended already. */
static int send_with(SyncOrder *order, unsigned long frame, Sending *sending)
{
    pthread_mutex_lock(&order->mutex);
    int is_in_time = frame > order->ended && append(&order->of_frame[frame % FRAMES_MAX], sending);
    pthread_mutex_unlock(&order->mutex);
    return is_in_time;
}

/* Under the mutex.  If there is no memory, some Sendings are leaked, with no other effect. */
static void put_away(SyncOrder *order, Sendings *those)
{
    if (order->spent.all == NULL) {
        order->spent = *those;
        return;
    }
    for (size_t at = 0; at < those->count; at++)
        append(&order->spent, those->all[at]);
    free(those->all);
}

/* Note that a frame is synced.  Takes the Sendings that are due now, in their order, and returns of
 * how many frames.  (They go to the first caller: mostly the thread, or else the loop that has asked for the outcome.) */
static int take_due(SyncOrder *order, unsigned long frame, Sendings due[FRAMES_MAX])
{
    int count = 0;
    pthread_mutex_lock(&order->mutex);
    if (frame > order->ended)
        order->is_synced[frame % FRAMES_MAX] = 1;
    while (order->ended < order->begun && order->is_synced[(order->ended + 1) % FRAMES_MAX]) {
        size_t at = ++order->ended % FRAMES_MAX;
        order->is_synced[at] = 0;
        due[count++] = order->of_frame[at];
        order->of_frame[at] = (Sendings){0};
    }
    pthread_mutex_unlock(&order->mutex);
    return count;
}

static void put_all_away(SyncOrder *order, Sendings due[FRAMES_MAX], int count)
{
    pthread_mutex_lock(&order->mutex);
    for (int each = 0; each < count; each++)
        put_away(order, &due[each]);
    pthread_mutex_unlock(&order->mutex);
}

static size_t count_all(const Sendings due[FRAMES_MAX], int frames)
{
    size_t count = 0;
    for (int each = 0; each < frames; each++)
        count += due[each].count;
    return count;
}

static void send_all(const Sendings due[FRAMES_MAX], int frames)
{
    for (int each = 0; each < frames; each++)
        for (size_t at = 0; at < due[each].count; at++)
            send_now(due[each].all[at]);
}

static int sync_order_init(SyncOrder *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "", names))
        return -1;
    pthread_mutex_init(&self->mutex, NULL);
    return 0;
}

static void sync_order_dealloc(SyncOrder *self)
{
    for (int at = 0; at < FRAMES_MAX; at++)
        let_go(&self->of_frame[at]);
    let_go(&self->spent);
    pthread_mutex_destroy(&self->mutex);
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

/* -- SyncThread ---------------------------------------------------------------------------------------------- */

enum wish { NOTHING, SYNC, END }; /* if both are wished, SYNC comes before END */

typedef struct {
    PyObject_HEAD
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wished;
    enum wish wish; /* under the mutex, as is all that follows */
    int is_ending;  /* no other wish will come */
    atomic_int has_wish; /* the same, for threads that read it without the mutex */
    int is_asleep;
    int is_expected; /* a wish will come in a moment */
    int is_running;
    atomic_int is_busy; /* from `begin` until the outcome is known */
    int32_t error;      /* the outcome, once there is one: an errno, or 0 */
    atomic_ulong told;  /* the last frame whose outcome the loop has received */
    pid_t process;  /* has the thread; a fork of it has none, and its mutex may stay locked */
    int file;       /* what is written to and synced */
    int bell;       /* the writing end of the pipe */
    PyObject *data; /* bytes being written, or written last; freed only with the interpreter lock */
    off_t offset;   /* where they go */
    SyncOrder *order;    /* the order that its frames belong to */
    unsigned long frame; /* the number of the one that was begun last */
    atomic_int slept_on; /* the processor that the thread was on when it went to sleep */
    long pause_ns;       /* recent average between a write's end and the next one; used by the thread only */
    int has_sent_many;   /* with the last frame: then clients need the processors; used by the thread only */
} SyncThread;

/* Long enough for a write after `expect`, and for one that follows another directly. */
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
    /* Not repeated, even after EINTR: the system may report only once that data could not be written. */
    return failed ? errno : 0;
}

/* Does nothing if the loop has the outcome already.  If the pipe is full, the loop wakes up anyway. */
static void wake_loop(SyncThread *self, unsigned long frame)
{
    if (atomic_load(&self->told) == frame)
        return;
    while (write(self->bell, "", 1) < 0 && errno == EINTR)
        ;
}

static long since_ns(const struct timespec *begun)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long seconds = (long)(now.tv_sec - begun->tv_sec);
    return seconds > 1 ? 2000000000L : seconds * 1000000000L + now.tv_nsec - begun->tv_nsec;
}

/* The processor that this thread runs on at the moment; -1 if that is unknown. */
static int processor_here(void)
{
#ifdef __linux__
    return sched_getcpu();
#else
    return -1;
#endif
}

static void look_out(SyncThread *self)
{
    struct timespec begun;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    while (!atomic_load(&self->has_wish) && since_ns(&begun) < LOOK_OUT_NS)
        sched_yield();
}

/* Keeps a moving average of the pauses between writes. */
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
    if (self->pause_ns < LOOK_OUT_NS && !self->has_sent_many)
        look_out(self);
    pthread_mutex_lock(&self->mutex);
    while (self->wish == NOTHING && !self->is_ending) {
        if (self->is_expected) {
            self->is_expected = 0;
            pthread_mutex_unlock(&self->mutex);
            look_out(self);
            pthread_mutex_lock(&self->mutex);
        } else {
            self->is_asleep = 1;
            atomic_store(&self->slept_on, processor_here());
            pthread_cond_wait(&self->wished, &self->mutex);
            self->is_asleep = 0;
        }
    }
    enum wish wish = self->wish == NOTHING ? END : self->wish;
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
        /* `begin` does not change these before the outcome is known. */
        int32_t error = write_file(self->file, PyBytes_AS_STRING(self->data),
                                   (size_t)PyBytes_GET_SIZE(self->data), self->offset);
        if (!error)
            error = sync_file(self->file);
        unsigned long frame = self->frame; /* read before `is_busy` is cleared: then the next may be begun */
        self->error = error;
        atomic_store(&self->is_busy, 0);
        if (error) {
            wake_loop(self, frame);
            continue;
        }
        Sendings due[FRAMES_MAX];
        int frames = take_due(self->order, frame, due);
        /* A single reply is sent before the loop is woken, since its client waits for nothing else.  Sending
         * many takes a while, in which the loop can already work. */
        size_t count = count_all(due, frames);
        if (count != 1)
            wake_loop(self, frame);
        send_all(due, frames);
        put_all_away(self->order, due, frames);
        if (count == 1)
            wake_loop(self, frame);
        self->has_sent_many = count > 1;
    }
}

static void tell(SyncThread *self, enum wish wish)
{
    pthread_mutex_lock(&self->mutex);
    if (wish == END)
        self->is_ending = 1;
    else
        self->wish = wish;
    atomic_store(&self->has_wish, 1);
    int is_asleep = self->is_asleep;
    pthread_mutex_unlock(&self->mutex);
    /* Not while the mutex is held, since the thread would wake up only to wait for it. */
    if (is_asleep)
        pthread_cond_signal(&self->wished);
}

/* The new thread blocks all signals: Python handles them in its own thread. */
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
    static char *names[] = {"file", "bell", "order", NULL};
    PyObject *order;
    if (self->is_running) {
        PyErr_SetString(PyExc_RuntimeError, "it runs already");
        return -1;
    }
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iiO", names, &self->file, &self->bell, &order))
        return -1;
    if (!Py_IS_TYPE(order, sync_order_type)) {
        PyErr_SetString(PyExc_TypeError, "the order is a SyncOrder");
        return -1;
    }
    Py_XSETREF(self->order, (SyncOrder *)Py_NewRef(order));
    pthread_mutex_init(&self->mutex, NULL);
    pthread_cond_init(&self->wished, NULL);
    self->wish = NOTHING;
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

/* Whether the thread is there, and in this process. */
static int is_here(SyncThread *self)
{
    return self->is_running && self->process == getpid();
}

static PyObject *sync_thread_begin(SyncThread *self, PyObject *const *args, Py_ssize_t count)
{
    if (count < 2 || count > 3 || !PyBytes_Check(args[0]) || (count == 3 && !PyList_Check(args[2]))) {
        PyErr_SetString(PyExc_TypeError, "bytes, an offset and maybe a list of sendings are wanted");
        return NULL;
    }
    Py_ssize_t replies = count == 3 ? PyList_GET_SIZE(args[2]) : 0;
    for (Py_ssize_t at = 0; at < replies; at++) {
        if (!Py_IS_TYPE(PyList_GET_ITEM(args[2], at), sending_type)) {
            PyErr_SetString(PyExc_TypeError, "only sendings can be sent");
            return NULL;
        }
    }
    long long offset = PyLong_AsLongLong(args[1]);
    if (offset == -1 && PyErr_Occurred())
        return NULL;
    if (!is_here(self)) {
        PyErr_SetString(PyExc_RuntimeError,
                        "it has ended, or belongs to the process that this was forked from");
        return NULL;
    }
    SyncOrder *order = self->order;
    let_go_of_spent(order);
    pthread_mutex_lock(&order->mutex);
    int is_possible = !atomic_load(&self->is_busy) && order->begun - order->ended < FRAMES_MAX;
    if (is_possible) {
        self->frame = ++order->begun;
        for (Py_ssize_t at = 0; at < replies; at++) {
            Sending *sending = (Sending *)PyList_GET_ITEM(args[2], at);
            if (append(&order->of_frame[self->frame % FRAMES_MAX], sending))
                Py_INCREF(sending);
        }
    }
    pthread_mutex_unlock(&order->mutex);
    if (!is_possible) {
        PyErr_SetString(PyExc_RuntimeError, "what was begun has not ended, or one before it has failed");
        return NULL;
    }
    atomic_store(&self->is_busy, 1);
    Py_XSETREF(self->data, Py_NewRef(args[0]));
    self->offset = (off_t)offset;
    tell(self, SYNC);
    Py_RETURN_NONE;
}

static PyObject *sync_thread_expect(SyncThread *self, PyObject *Py_UNUSED(nothing))
{
    if (!is_here(self))
        Py_RETURN_NONE;
    /* Not if the thread slept on the caller's processor, where it would wake up: it would poll while the
     * caller has to work, and start its write only when the caller sleeps.  If `begin` wakes it instead, it runs
     * first, and the loop prepares the replies while the disk works.  (Virtual machines wake threads on the processor
     * they slept on, even if another is idle.) */
    int here = processor_here();
    if (here >= 0 && here == atomic_load(&self->slept_on))
        Py_RETURN_NONE;
    pthread_mutex_lock(&self->mutex);
    int is_asleep = self->is_asleep;
    self->is_expected = is_asleep;
    pthread_mutex_unlock(&self->mutex);
    if (is_asleep)
        pthread_cond_signal(&self->wished);
    Py_RETURN_NONE;
}

static PyObject *sync_thread_attach(SyncThread *self, PyObject *sending)
{
    if (!Py_IS_TYPE(sending, sending_type)) {
        PyErr_SetString(PyExc_TypeError, "only a sending can be sent");
        return NULL;
    }
    if (!is_here(self) || !send_with(self->order, self->frame, (Sending *)sending))
        Py_RETURN_FALSE;
    Py_INCREF(sending);
    Py_RETURN_TRUE;
}

static PyObject *sync_thread_outcome(SyncThread *self, PyObject *Py_UNUSED(nothing))
{
    if (atomic_load(&self->told) == self->frame || atomic_load(&self->is_busy))
        Py_RETURN_NONE;
    atomic_store(&self->told, self->frame);
    if (!self->error) {
        Sendings due[FRAMES_MAX];
        put_all_away(self->order, due, take_due(self->order, self->frame, due));
    }
    return PyLong_FromLong(self->error);
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
    Py_CLEAR(self->order);
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMethodDef sending_methods[] = {
    {"take_back", (PyCFunction)sending_take_back, METH_NOARGS,
     "Have it not sent, if it was not; how many bytes of it were."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot sending_slots[] = {
    {Py_tp_doc, "Bytes for a socket: see `make_sending`."},
    {Py_tp_dealloc, sending_dealloc},
    {Py_tp_methods, sending_methods},
    {0, NULL},
};

static PyType_Slot sync_order_slots[] = {
    {Py_tp_doc, "The order in which the frames of several threads count: that in which they were begun."},
    {Py_tp_init, sync_order_init},
    {Py_tp_dealloc, sync_order_dealloc},
    {0, NULL},
};

static PyMethodDef sync_thread_methods[] = {
    {"begin", (PyCFunction)(void (*)(void))sync_thread_begin, METH_FASTCALL,
     "Write (data, offset) and sync the file; when that is over, the bell rings.  One at a time.\n\n"
     "A third argument has what is sent then, if all goes well."},
    {"expect", (PyCFunction)sync_thread_expect, METH_NOARGS,
     "Something is begun within microseconds, very likely: wake up for it."},
    {"attach", (PyCFunction)sync_thread_attach, METH_O,
     "Have one more thing sent with what was begun last.  False, if that is over already."},
    {"outcome", (PyCFunction)sync_thread_outcome, METH_NOARGS,
     "How what was begun has ended: 0, or an errno; None, if it has not, or was told before.\n\n"
     "If all went well, what is not being sent by now is the loop's to send."},
    {"close", (PyCFunction)sync_thread_close, METH_NOARGS,
     "End the thread, after what is on its way."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot sync_thread_slots[] = {
    {Py_tp_doc, "A thread that writes to one file and syncs it.  (file, bell, order): descriptors, of which it owns neither."},
    {Py_tp_init, sync_thread_init},
    {Py_tp_dealloc, sync_thread_dealloc},
    {Py_tp_methods, sync_thread_methods},
    {0, NULL},
};

#define NAMED(name) "quoracy.engines.embedded.disk._sync_thread." name

static struct {
    PyTypeObject **type;
    PyType_Spec spec;
} types[] = {
    {&sending_type,
     {.name = NAMED("Sending"), .basicsize = sizeof(Sending), .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, .slots = sending_slots}},
    {&sync_order_type,
     {.name = NAMED("SyncOrder"), .basicsize = sizeof(SyncOrder), .flags = Py_TPFLAGS_DEFAULT, .slots = sync_order_slots}},
    {&sync_thread_type,
     {.name = NAMED("SyncThread"), .basicsize = sizeof(SyncThread), .flags = Py_TPFLAGS_DEFAULT, .slots = sync_thread_slots}},
};

static int add_types(PyObject *module)
{
    for (size_t at = 0; at < sizeof types / sizeof *types; at++) {
        *types[at].type = (PyTypeObject *)PyType_FromSpec(&types[at].spec);
        if (*types[at].type == NULL || PyModule_AddType(module, *types[at].type) < 0)
            return -1;
    }
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, add_types},
    {0, NULL},
};

/* -- a thread that can wait -------------------------------------------------------------------------------- */

#if defined(__linux__) && defined(SYS_sched_setattr) && defined(SYS_sched_getattr)
/* `struct sched_attr` of linux/sched/types.h, which not every C library has. */
struct turns {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

/* Gives the calling thread long time slices and the policy SCHED_BATCH, so that others preempt it.
 *
 * Since Linux 6.12 a thread that wakes up preempts a running thread with longer time slices; before, it waited
 * for the end of the running thread's slice, even if another processor was idle.  In all versions, a thread
 * with the policy SCHED_BATCH does not preempt others when it wakes up.  So it does not interrupt the thread on
 * its processor that has just handed it work or the interpreter lock.  (Without this the loop was seen to stand
 * still for milliseconds while another processor was idle.)  Unlike a priority, this leaves every thread's share
 * of the processors as it is: a thread of low priority that is kept waiting while it holds the interpreter lock
 * keeps the loop waiting. */
static int take_long_turns(void)
{
    struct turns turns = {.size = sizeof turns};
    if (syscall(SYS_sched_getattr, 0, &turns, sizeof turns, 0) || turns.policy != SCHED_OTHER)
        return 0;
    turns.size = sizeof turns;
    turns.policy = SCHED_BATCH;
    turns.runtime_ns = 20 * 1000 * 1000;
    return !syscall(SYS_sched_setattr, 0, &turns, 0);
}
#else
static int take_long_turns(void)
{
    return 0;
}
#endif

static PyObject *let_others_go_first(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    return PyBool_FromLong(take_long_turns());
}

static PyObject *start_writing(PyObject *Py_UNUSED(module), PyObject *file)
{
    int descriptor = PyObject_AsFileDescriptor(file);
    if (descriptor < 0)
        return NULL;
#ifdef __linux__
    Py_BEGIN_ALLOW_THREADS
    /* An error is not lost: the next sync reports it. */
    (void)sync_file_range(descriptor, 0, 0, SYNC_FILE_RANGE_WRITE);
    Py_END_ALLOW_THREADS
#endif
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"let_others_go_first", let_others_go_first, METH_NOARGS,
     "Have this thread interrupted by any other that wakes up, and interrupt none; whether the system takes that."},
    {"make_sending", (PyCFunction)(void (*)(void))make_sending, METH_FASTCALL,
     "Bytes for a socket.  (descriptor, data): the descriptor stays whose it is."},
    {"start_writing", start_writing, METH_O,
     "Have the system begin to write what is not on the disk yet of a file; that is not waited for."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_sync_thread",
    .m_doc = "A thread that writes to a file and syncs it without the interpreter lock.",
    .m_methods = functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__sync_thread(void)
{
    return PyModuleDef_Init(&module);
}
