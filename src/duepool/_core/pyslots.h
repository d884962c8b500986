/* Small pieces of the interpreter's C interface that Cython does not spell. */
#ifndef DUEPOOL_PYSLOTS_H
#define DUEPOOL_PYSLOTS_H

#include "Python.h"

static inline int dp_is_list(PyObject *o) { return PyList_CheckExact(o); }

/* Lists that only the engine knows and never resizes. All three are plain stores and loads, callable
 * under the monitor: None, whose count they change, is never freed. */
static inline void dp_list_publish(PyObject *list, Py_ssize_t index, PyObject *item) {
    ((PyListObject *)list)->ob_item[index] = item; /* takes the reference to item, over a None */
    Py_DECREF(Py_None);
}
static inline PyObject *dp_list_exchange(PyObject *list, Py_ssize_t index, PyObject *item) {
    PyObject *old = ((PyListObject *)list)->ob_item[index];
    ((PyListObject *)list)->ob_item[index] = item;
    return old; /* its reference goes to the caller, to be dropped after unlocking */
}
static inline PyObject *dp_list_peek(PyObject *list, Py_ssize_t index) {
    return ((PyListObject *)list)->ob_item[index];
}
static inline PyObject *dp_new_none(void) {
    Py_INCREF(Py_None);
    return Py_None;
}

/* The raised exception, normalised, with its traceback; the error indicator is cleared. No frame of
 * ours is added to the traceback, so that it begins with the body's own. */
static inline PyObject *dp_take_error(void) {
#if PY_VERSION_HEX >= 0x030C0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(value, traceback);
        Py_DECREF(traceback);
    }
    Py_XDECREF(type);
    return value;
#endif
}

/* An exception that another thread set for this one and that came too late for the body: it must not
 * reach the next. It is drawn off by entering `nothing`, a Python function: taken back in place, it
 * would leave the interpreter looking for it at every step (3.11, 3.12). */
static inline void dp_clear_async(PyObject *nothing) {
    PyThreadState *state = PyThreadState_Get();
    if (state->async_exc != NULL) {
        PyObject *done = PyObject_CallNoArgs(nothing);
        if (done == NULL) PyErr_Clear();
        Py_XDECREF(done);
        if (state->async_exc != NULL) PyThreadState_SetAsyncExc(state->thread_id, NULL);
    }
}

/* True when this thread has never used a context variable: there is nothing to copy. */
static inline int dp_no_context(void) { return PyThreadState_Get()->context == NULL; }

/* Call a body. NULL: it raised, and *error holds the exception (a new reference). */
static inline PyObject *dp_call(PyObject *fn, PyObject *args, PyObject *kwargs, PyObject **error) {
    PyObject *result = PyObject_Call(fn, args, kwargs);
    *error = result == NULL ? dp_take_error() : NULL;
    return result;
}

/* 1: a plain function that a thread can run; 0: a coroutine function; -1: look closer. */
static inline int dp_plain_function(PyObject *fn) {
    if (PyMethod_Check(fn)) fn = PyMethod_GET_FUNCTION(fn);
    if (PyFunction_Check(fn)) {
        int flags = ((PyCodeObject *)PyFunction_GET_CODE(fn))->co_flags;
        return (flags & (CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE)) == 0 ? 1 : -1;
    }
    return PyCFunction_CheckExact(fn) ? 1 : -1;
}

/* A failure's slots are set without running Python code. */
static inline PyObject *dp_traceback(PyObject *error) {
    PyObject *traceback = PyException_GetTraceback(error);
    if (traceback == NULL) {
        Py_INCREF(Py_None);
        traceback = Py_None;
    }
    return traceback;
}

/* Is `error` of this exception class? By its real type: `__class__` may be a property that raises. */
static inline int dp_is_error(PyObject *error, PyObject *type) {
    return PyType_IsSubtype(Py_TYPE(error), (PyTypeObject *)type);
}

/* Call a method of a lock. At the recursion limit the limit gives way by a little: the call is the
 * last of the way, in C, and whoever waits for it must not wait for ever. */
static inline PyObject *dp_call_lock(PyObject *method) {
    PyObject *result = PyObject_CallNoArgs(method);
    if (result == NULL && PyErr_ExceptionMatches(PyExc_RecursionError)) {
        int limit = Py_GetRecursionLimit();
        PyErr_Clear();
        Py_SetRecursionLimit(limit + 64);
        result = PyObject_CallNoArgs(method);
        Py_SetRecursionLimit(limit);
    }
    return result;
}

/* How many nested Python calls this thread may still make. */
static inline int dp_calls_left(void) {
#if PY_VERSION_HEX >= 0x030C0000
    return PyThreadState_Get()->py_recursion_remaining;
#else
    return PyThreadState_Get()->recursion_remaining;
#endif
}

/* Let the recursion limit give way by `by` (negative: take it back) for a step that must not fail. */
static inline void dp_give_way(int by) { Py_SetRecursionLimit(Py_GetRecursionLimit() + by); }

/* A new, empty instance of a class whose constructor must not run. */
static inline PyObject *dp_new(PyTypeObject *type, PyObject *empty) {
    return type->tp_new(type, empty, NULL);
}

#endif
