"""The admission counter: who may enter the queue.

Invariant, with the monitor held: ``0 <= queued <= capacity`` unless unbounded. A refusal changes
nothing but ``rejected``. Cost: O(1). Takes no lock: call with the monitor held.
"""

from libc.stdint cimport int64_t

cdef enum:
    ADMITTED = 0
    CLOSED = 1
    FULL = 2

cdef struct AdmissionState:
    int64_t capacity       # the most that may be queued; -1: unbounded
    int64_t queued
    int64_t rejected       # refused submissions
    bint closed            # sticky


cdef inline void admission_init(AdmissionState* admission, int64_t capacity) noexcept nogil:
    admission.capacity = capacity
    admission.queued = 0
    admission.rejected = 0
    admission.closed = False


cdef inline bint admission_full(AdmissionState* admission, int64_t k) noexcept nogil:
    """Would ``k`` more be too many? Call with the monitor held."""
    return admission.capacity >= 0 and k > admission.capacity - admission.queued


cdef inline int admission_try(AdmissionState* admission, int64_t k) noexcept nogil:
    """Take ``k`` places, or none. Call with the monitor held."""
    if admission.closed:
        admission.rejected += k
        return CLOSED
    if admission_full(admission, k):
        admission.rejected += k
        return FULL
    admission.queued += k
    return ADMITTED


cdef inline void admission_release(AdmissionState* admission, int64_t k) noexcept nogil:
    """Give ``k`` places back. Call with the monitor held."""
    admission.queued -= k
