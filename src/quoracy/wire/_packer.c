/* Packer: numbers to bytes, big-endian, as `struct.Struct.pack` does it, and bytes behind them.
 *
 * What struct does for any kind of number it does for each in turn: 2,900 instructions for the eleven of a
 * znode's Stat.  Every write of the ZooKeeper face packs three such records.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { FIELDS_MAX = 16 };

typedef struct {
    int size; /* in bytes */
    long long least, most;
} Kind;

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    Py_ssize_t count, size;
    Kind fields[FIELDS_MAX];
    PyObject *error; /* struct.error */
} Packer;

static int find_kind(char letter, Kind *kind)
{
    switch (letter) {
    case 'B':
        *kind = (Kind){1, 0, UINT8_MAX};
        return 1;
    case 'i':
        *kind = (Kind){4, INT32_MIN, INT32_MAX};
        return 1;
    case 'I':
        *kind = (Kind){4, 0, UINT32_MAX};
        return 1;
    case 'q':
        *kind = (Kind){8, INT64_MIN, INT64_MAX};
        return 1;
    default:
        return 0;
    }
}

static int pack_number(Packer *self, Py_ssize_t field, PyObject *number, unsigned char *to)
{
    const Kind *kind = &self->fields[field];
    if (!PyLong_Check(number)) {
        PyErr_Format(self->error, "field %zd is no integer", field);
        return -1;
    }
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow || value < kind->least || value > kind->most) {
        PyErr_Format(self->error, "field %zd has %d bytes, too few for %R", field, kind->size, number);
        return -1;
    }
    unsigned long long bits = (unsigned long long)value;
    for (int at = kind->size; at-- > 0; bits >>= 8)
        to[at] = (unsigned char)bits;
    return 0;
}

static PyObject *packer_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names)
{
    Packer *self = (Packer *)callable;
    Py_ssize_t given = PyVectorcall_NARGS(flags);
    PyObject *tail = given == self->count + 1 ? args[self->count] : NULL;
    if (names != NULL || (given != self->count && tail == NULL)) {
        PyErr_Format(self->error, "%zd numbers are wanted, and maybe bytes", self->count);
        return NULL;
    }
    if (tail != NULL && !PyBytes_Check(tail)) {
        PyErr_SetString(PyExc_TypeError, "what follows the numbers is not bytes");
        return NULL;
    }
    Py_ssize_t tail_size = tail == NULL ? 0 : PyBytes_GET_SIZE(tail);
    PyObject *packed = PyBytes_FromStringAndSize(NULL, self->size + tail_size);
    if (packed == NULL)
        return NULL;
    unsigned char *to = (unsigned char *)PyBytes_AS_STRING(packed);
    for (Py_ssize_t field = 0; field < self->count; field++) {
        if (pack_number(self, field, args[field], to) < 0) {
            Py_DECREF(packed);
            return NULL;
        }
        to += self->fields[field].size;
    }
    if (tail_size)
        memcpy(to, PyBytes_AS_STRING(tail), (size_t)tail_size);
    return packed;
}

static int packer_init(Packer *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"format", NULL};
    const char *format;
    if (self->error != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "it has its format already");
        return -1;
    }
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s", names, &format))
        return -1;
    size_t count = strlen(format);
    if (count < 2 || format[0] != '>' || count - 1 > FIELDS_MAX) {
        PyErr_Format(PyExc_ValueError, "a format is > and up to %d fields", (int)FIELDS_MAX);
        return -1;
    }
    Py_ssize_t size = 0;
    for (size_t at = 1; at < count; at++) {
        if (!find_kind(format[at], &self->fields[at - 1])) {
            PyErr_Format(PyExc_ValueError, "there is no field %c here, only B, i, I and q", format[at]);
            return -1;
        }
        size += self->fields[at - 1].size;
    }
    PyObject *structs = PyImport_ImportModule("struct");
    if (structs == NULL)
        return -1;
    self->error = PyObject_GetAttrString(structs, "error");
    Py_DECREF(structs);
    if (self->error == NULL)
        return -1;
    self->count = (Py_ssize_t)count - 1;
    self->size = size;
    self->call = packer_call;
    return 0;
}

static PyObject *packer_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    return type->tp_alloc(type, 0);
}

static void packer_dealloc(Packer *self)
{
    Py_CLEAR(self->error);
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Packer, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Packs numbers in a format of struct's, made of > and B, i, I or q."},
    {Py_tp_new, packer_new},
    {Py_tp_init, packer_init},
    {Py_tp_dealloc, packer_dealloc},
    {Py_tp_members, members},
    {Py_tp_call, PyVectorcall_Call},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "quoracy.wire._packer.Packer",
    .basicsize = sizeof(Packer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

static int add_types(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    if (type == NULL)
        return -1;
    int failed = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return failed;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, add_types},
    {0, NULL},
};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_packer",
    .m_doc = "Numbers to bytes.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__packer(void)
{
    return PyModuleDef_Init(&module);
}
