/* untracked: a tuple that the garbage collector need not look at.
 *
 * A tuple of versions cannot be part of a cycle, since a version is nothing to the collector.  It finds that
 * out by itself, when it comes to look at the tuple for the first time: thousands of them in one go, each
 * somewhere in memory, while the loop stands still (1 to 3 ms for 5,000).  Here it is told at once.
 *
 * A tuple with anything in it that the collector does look at stays as it is.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyObject *untracked(PyObject *Py_UNUSED(module), PyObject *versions)
{
    if (!PyTuple_CheckExact(versions)) {
        PyErr_SetString(PyExc_TypeError, "a tuple is wanted");
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(versions);
    if (count > 0 && PyObject_GC_IsTracked(versions)) {
        for (Py_ssize_t at = 0; at < count; at++)
            if (PyObject_IS_GC(PyTuple_GET_ITEM(versions, at)))
                return Py_NewRef(versions);
        PyObject_GC_UnTrack(versions);
    }
    return Py_NewRef(versions);
}

static PyMethodDef functions[] = {
    {"untracked", untracked, METH_O,
     "The same tuple, left alone by the garbage collector if nothing in it is the collector's business."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_untracked",
    .m_doc = "Tuples that the garbage collector need not look at.",
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__untracked(void)
{
    return PyModuleDef_Init(&module);
}
