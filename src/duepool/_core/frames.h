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
    int worker;              /* -1: tick() */
} dp_frame;

static DP_THREAD_LOCAL dp_frame *dp_top = NULL;

static inline void dp_push_frame(dp_frame *frame) {
    frame->below = dp_top;
    dp_top = frame;
}
static inline void dp_pop_frame(dp_frame *frame) { dp_top = frame->below; }


#endif
