/* The stack of run loops and ticks of the calling thread. */
#ifndef DUEPOOL_FRAMES_H
#define DUEPOOL_FRAMES_H

#include "Python.h"

#include "platform.h"

/* The innermost body (or worker between bodies) of this thread: a stack through the C frames of the
 * run loops and ticks. References are borrowed from those frames. */
typedef struct dp_frame {
    PyObject *engine;
    PyObject *task;          /* NULL between bodies */
    struct dp_frame *below;
    int worker;              /* -1: tick(), -3: a body that no worker and no tick() runs */
    int concluded;           /* a body that was handed over has ended on this very thread */
} dp_frame;

static DP_THREAD_LOCAL dp_frame *dp_top = NULL;

static inline void dp_push_frame(dp_frame *frame) {
    frame->below = dp_top;
    dp_top = frame;
}
static inline void dp_pop_frame(dp_frame *frame) { dp_top = frame->below; }

/* framed(task, fn, args, kwargs): call a body with a frame for its task on this thread. A C function,
 * so that no frame of ours stands in the traceback of what the body raises. */
static PyObject *dp_framed(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    dp_frame frame;
    PyObject *result;
    if (count != 4 || !PyTuple_Check(args[2]) || !PyDict_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "framed() takes a task, fn, a tuple and a dict");
        return NULL;
    }
    frame.engine = PyObject_GetAttrString(args[0], "_engine");
    if (frame.engine == NULL) return NULL;
    frame.task = args[0];
    frame.worker = -3;
    frame.concluded = 0;
    dp_push_frame(&frame);
    result = PyObject_Call(args[1], args[2], args[3]);
    dp_pop_frame(&frame);
    Py_DECREF(frame.engine);
    return result;
}

static PyMethodDef dp_framed_method = {
    "framed", (PyCFunction)(void (*)(void))dp_framed, METH_FASTCALL,
    "framed(task, fn, args, kwargs, /)\n--\n\n"
    "Call ``fn(*args, **kwargs)`` as the body of ``task``, which this thread has not claimed."};

static inline PyObject *dp_framed_function(void) { return PyCFunction_New(&dp_framed_method, NULL); }

#endif
