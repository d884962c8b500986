/* The platform's part of the compiled engine, inside one #if.
 *
 * Lock, condition variable, monotonic time, the top bit of a word, aligned memory, thread-local
 * storage and atomics, for Linux (and other POSIX systems), macOS and Windows. Plain C: no
 * exception, destructor or noexcept function can meet the interpreter's thread exit here.
 *
 * All timed waits are on the monotonic clock that dp_now_ns() reads, so that a step of the wall
 * clock neither stalls nor hurries a deadline. A wait may end early (spuriously, or because a limit
 * of the platform cut it): callers loop.
 */
#ifndef DUEPOOL_PLATFORM_H
#define DUEPOOL_PLATFORM_H

#include <stdint.h>
#include <stdlib.h>

#if defined(_WIN32)

#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#include <intrin.h>
#include <malloc.h>

typedef SRWLOCK dp_mutex;
typedef CONDITION_VARIABLE dp_cond;
#define DP_THREAD_LOCAL __declspec(thread)

static inline int dp_watch_forks(int64_t *counter) { (void)counter; return 0; } /* no fork here */

static inline int dp_mutex_init(dp_mutex *m) { InitializeSRWLock(m); return 0; }
static inline void dp_mutex_destroy(dp_mutex *m) { (void)m; }
static inline void dp_mutex_lock(dp_mutex *m) { AcquireSRWLockExclusive(m); }
static inline void dp_mutex_unlock(dp_mutex *m) { ReleaseSRWLockExclusive(m); }
static inline int dp_cond_init(dp_cond *c) { InitializeConditionVariable(c); return 0; }
static inline void dp_cond_destroy(dp_cond *c) { (void)c; }
static inline void dp_cond_signal(dp_cond *c) { WakeConditionVariable(c); }
static inline void dp_cond_broadcast(dp_cond *c) { WakeAllConditionVariable(c); }
static inline void dp_cond_wait(dp_cond *c, dp_mutex *m) {
    SleepConditionVariableSRW(c, m, INFINITE, 0);
}

static inline int64_t dp_now_ns(void) {
    LARGE_INTEGER frequency, count;
    QueryPerformanceFrequency(&frequency);
    QueryPerformanceCounter(&count);
    return (count.QuadPart / frequency.QuadPart) * 1000000000LL
         + (count.QuadPart % frequency.QuadPart) * 1000000000LL / frequency.QuadPart;
}

static inline void dp_cond_wait_until(dp_cond *c, dp_mutex *m, int64_t deadline_ns) {
    int64_t rest = deadline_ns - dp_now_ns();
    if (rest <= 0) return;
    /* Milliseconds, rounded up (never early), and below INFINITE (2**32 - 1). */
    int64_t ms = rest / 1000000 + (rest % 1000000 != 0);
    SleepConditionVariableSRW(c, m, ms > 2000000000LL ? 2000000000UL : (DWORD)ms, 0);
}

static inline int dp_top_bit(uint64_t x) {
    unsigned long index;
    _BitScanReverse64(&index, x);
    return (int)index;
}
static inline void *dp_aligned_alloc(size_t size) { return _aligned_malloc(size, 64); }
static inline void dp_aligned_free(void *p) { _aligned_free(p); }

static inline int32_t dp_load32(const int32_t *p) {
    int32_t v = *(const volatile int32_t *)p; _ReadWriteBarrier(); return v;
}
static inline void dp_store32(int32_t *p, int32_t v) { InterlockedExchange((volatile long *)p, v); }
static inline int64_t dp_load64(const int64_t *p) {
    int64_t v = *(const volatile int64_t *)p; _ReadWriteBarrier(); return v;
}
static inline void dp_store64(int64_t *p, int64_t v) {
    InterlockedExchange64((volatile long long *)p, v);
}
static inline int64_t dp_add64(int64_t *p, int64_t v) {
    return InterlockedExchangeAdd64((volatile long long *)p, v) + v;
}
static inline int dp_cas64(int64_t *p, int64_t expected, int64_t wanted) {
    return InterlockedCompareExchange64((volatile long long *)p, wanted, expected) == expected;
}

#else

#include <pthread.h>
#include <time.h>

typedef pthread_mutex_t dp_mutex;
typedef pthread_cond_t dp_cond;
#define DP_THREAD_LOCAL __thread

/* Count up in the child of every fork, before anything else runs there. */
static int64_t *dp_fork_counter = NULL;
static inline void dp_forked(void) { *dp_fork_counter += 1; }
static inline int dp_watch_forks(int64_t *counter) {
    dp_fork_counter = counter;
    return pthread_atfork(NULL, NULL, dp_forked);
}

static inline int dp_mutex_init(dp_mutex *m) { return pthread_mutex_init(m, NULL); }
static inline void dp_mutex_destroy(dp_mutex *m) { pthread_mutex_destroy(m); }
static inline void dp_mutex_lock(dp_mutex *m) { pthread_mutex_lock(m); }
static inline void dp_mutex_unlock(dp_mutex *m) { pthread_mutex_unlock(m); }
static inline void dp_cond_destroy(dp_cond *c) { pthread_cond_destroy(c); }
static inline void dp_cond_signal(dp_cond *c) { pthread_cond_signal(c); }
static inline void dp_cond_broadcast(dp_cond *c) { pthread_cond_broadcast(c); }
static inline void dp_cond_wait(dp_cond *c, dp_mutex *m) { pthread_cond_wait(c, m); }

/* The longest single wait: 30 years keeps every time_t and timespec in range. */
#define DP_LONGEST_NS 946080000000000000LL

# if defined(__APPLE__)

/* The clock of mach_absolute_time, which CPython's time.monotonic() reads too. */
static inline int64_t dp_now_ns(void) { return (int64_t)clock_gettime_nsec_np(CLOCK_UPTIME_RAW); }
static inline int dp_cond_init(dp_cond *c) { return pthread_cond_init(c, NULL); }
static inline void dp_cond_wait_until(dp_cond *c, dp_mutex *m, int64_t deadline_ns) {
    int64_t rest = deadline_ns - dp_now_ns();
    struct timespec ts;
    if (rest <= 0) return;
    if (rest > DP_LONGEST_NS) rest = DP_LONGEST_NS;
    ts.tv_sec = (time_t)(rest / 1000000000LL);
    ts.tv_nsec = (long)(rest % 1000000000LL);
    pthread_cond_timedwait_relative_np(c, m, &ts);
}

# else

static inline int64_t dp_now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000LL + ts.tv_nsec;
}
static inline int dp_cond_init(dp_cond *c) {
    pthread_condattr_t attr;
    int error = pthread_condattr_init(&attr);
    if (error) return error;
    error = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (!error) error = pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
    return error;
}
static inline void dp_cond_wait_until(dp_cond *c, dp_mutex *m, int64_t deadline_ns) {
    struct timespec ts;
    int64_t latest = dp_now_ns() + DP_LONGEST_NS;
    if (deadline_ns > latest) deadline_ns = latest;
    ts.tv_sec = (time_t)(deadline_ns / 1000000000LL);
    ts.tv_nsec = (long)(deadline_ns % 1000000000LL);
    pthread_cond_timedwait(c, m, &ts);
}

# endif

static inline int dp_top_bit(uint64_t x) { return 63 - __builtin_clzll(x); }
static inline void *dp_aligned_alloc(size_t size) {
    void *p = NULL;
    return posix_memalign(&p, 64, size) ? NULL : p;
}
static inline void dp_aligned_free(void *p) { free(p); }

static inline int32_t dp_load32(const int32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline void dp_store32(int32_t *p, int32_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
static inline int64_t dp_load64(const int64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline void dp_store64(int64_t *p, int64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
static inline int64_t dp_add64(int64_t *p, int64_t v) {
    return __atomic_add_fetch(p, v, __ATOMIC_SEQ_CST);
}
static inline int dp_cas64(int64_t *p, int64_t expected, int64_t wanted) {
    return __atomic_compare_exchange_n(p, &expected, wanted, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

#endif
#endif
