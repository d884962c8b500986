"""Declarations of ``platform.h``."""

from libc.stdint cimport int32_t, int64_t, uint64_t

cdef extern from "platform.h" nogil:
    ctypedef struct dp_mutex:
        pass
    ctypedef struct dp_cond:
        pass
    int dp_mutex_init(dp_mutex* m)
    void dp_mutex_destroy(dp_mutex* m)
    void dp_mutex_lock(dp_mutex* m)
    void dp_mutex_unlock(dp_mutex* m)
    int dp_cond_init(dp_cond* c)
    void dp_cond_destroy(dp_cond* c)
    void dp_cond_signal(dp_cond* c)
    void dp_cond_broadcast(dp_cond* c)
    void dp_cond_wait(dp_cond* c, dp_mutex* m)
    void dp_cond_wait_until(dp_cond* c, dp_mutex* m, int64_t deadline_ns)
    int dp_watch_forks(int64_t* counter)
    int64_t dp_now_ns()
    int dp_top_bit(uint64_t x)
    void* dp_aligned_alloc(size_t size)
    void dp_aligned_free(void* p)
    int32_t dp_load32(const int32_t* p)
    void dp_store32(int32_t* p, int32_t v)
    int64_t dp_load64(const int64_t* p)
    void dp_store64(int64_t* p, int64_t v)
    int64_t dp_add64(int64_t* p, int64_t v)
    bint dp_cas64(int64_t* p, int64_t expected, int64_t wanted)
