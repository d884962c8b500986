# cython: language_level=3, boundscheck=False, wraparound=False, auto_pickle=False
"""A thin shell over ``admission.pxd``, for tests; the engine uses the functions."""

from libc.stdint cimport int64_t


from .admission cimport (
    ADMITTED,
    AdmissionState,
    admission_init,
    admission_release,
    admission_take,
    admission_verdict,
)


cdef class Admission:
    """Bounds how many tasks may be queued."""

    cdef AdmissionState state

    def __cinit__(self, capacity):
        if capacity is not None and capacity < 0:
            raise ValueError(f"capacity must be >= 0 or None, got {capacity!r}")
        admission_init(&self.state, -1 if capacity is None else capacity)

    def try_admit(self, int64_t k=1):
        """Take ``k`` places or none: 0 admitted, 1 closed, 2 full."""
        cdef int answer = admission_verdict(&self.state, k, -1, False)
        if answer == ADMITTED:
            admission_take(&self.state, k, -1)
        else:
            self.state.rejected += k
        return answer

    def release(self, int64_t k=1):
        """Give ``k`` places back. ``ValueError``, and nothing changes, for more than are taken."""
        if k > self.state.queued:
            raise ValueError(f"cannot release {k} places: only {self.state.queued} are taken")
        admission_release(&self.state, k, -1)

    def close(self):
        """Refuse everything from now on."""
        self.state.closed = True

    @property
    def queued(self):
        """How many places are taken."""
        return self.state.queued

    @property
    def capacity(self):
        """The most that may be taken; None: unbounded."""
        return None if self.state.capacity < 0 else self.state.capacity

    @property
    def rejected(self):
        """How many submissions were refused."""
        return self.state.rejected

    @property
    def closed(self):
        """True once closed."""
        return bool(self.state.closed)
