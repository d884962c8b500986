"""The admission counter: who may enter the queue, in all and by tenant.

Invariants, with the monitor held: ``0 <= queued <= capacity`` unless unbounded, and the same for
each quota; ``in_line`` is the sum of all that wait. A refusal changes nothing but ``rejected``. As
long as somebody waits in the line of a resource (the capacity, or a tenant's quota), nobody else
gets of it. Cost: O(1). Takes no lock: call with the monitor held.
"""

from libc.stdint cimport int32_t, int64_t

cdef enum:
    ADMITTED = 0
    CLOSED = 1
    FULL = 2
    QUOTA_FULL = 3

cdef struct Quota:
    int64_t limit          # the most that the tenant may have queued
    int64_t queued
    int64_t waiting        # submissions that stand in line for it

cdef struct AdmissionState:
    int64_t capacity       # the most that may be queued; -1: unbounded
    int64_t queued
    int64_t rejected       # refused submissions
    int64_t waiting        # submissions that stand in line for the capacity
    int64_t in_line        # submissions that stand in any line
    Quota* quotas          # by tenant; NULL without any
    bint closed            # sticky


cdef inline void admission_init(AdmissionState* admission, int64_t capacity) noexcept nogil:
    admission.capacity = capacity
    admission.queued = 0
    admission.rejected = 0
    admission.waiting = 0
    admission.in_line = 0
    admission.quotas = NULL
    admission.closed = False


cdef inline int admission_verdict(
    AdmissionState* admission, int64_t k, int32_t tenant, bint ahead
) noexcept nogil:
    """May ``k`` more enter? ``ahead``: minding nobody in line. Call with the monitor held."""
    cdef Quota* quota
    if admission.closed:
        return CLOSED
    if not k:
        return ADMITTED
    if admission.capacity >= 0 and k > admission.capacity - admission.queued:
        return FULL
    if admission.waiting and not ahead:
        return FULL
    if tenant >= 0:
        quota = admission.quotas + tenant
        if k > quota.limit - quota.queued or (quota.waiting and not ahead):
            return QUOTA_FULL
    return ADMITTED


cdef inline void admission_take(
    AdmissionState* admission, int64_t k, int32_t tenant
) noexcept nogil:
    """Take ``k`` places that the verdict granted. Call with the monitor held."""
    admission.queued += k
    if tenant >= 0:
        admission.quotas[tenant].queued += k


cdef inline void admission_release(
    AdmissionState* admission, int64_t k, int32_t tenant
) noexcept nogil:
    """Give ``k`` places back. Call with the monitor held."""
    admission.queued -= k
    if tenant >= 0:
        admission.quotas[tenant].queued -= k


cdef inline void admission_line(
    AdmissionState* admission, int32_t tenant, int step
) noexcept nogil:
    """One more (or less, ``step`` -1) stands in the line of a quota, or of the capacity. Call with
    the monitor held."""
    admission.in_line += step
    if tenant >= 0:
        admission.quotas[tenant].waiting += step
    else:
        admission.waiting += step
