// Runs one block of CUDA threads on one CPU thread: a fiber per thread, switched at barriers and shuffles.
//
// What it checks on the way: shared memory starts as NaN and has exactly the size asked for (an address sanitizer sees
// the edges); a barrier that not every thread reaches, or that threads reach at different lines, ends the launch with
// a message. What it cannot check: races between barriers (running threads and blocks backwards finds some), the memory
// model, speed.
#pragma once
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define SHIM_SANITIZED 1
#else
#define SHIM_SANITIZED 0
#endif

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};

namespace shim {

constexpr size_t STACK_BYTES = 256 * 1024;

// A stack and a place to continue. makecontext enters a fiber once; after that _setjmp and _longjmp switch in
// nanoseconds, where swapcontext makes two system calls.
struct Stack {
    ucontext_t start;
    jmp_buf here;
    void* memory = nullptr;
    void* fake_stack = nullptr;
};

struct PendingCopy {
    void* target;
    const void* source;
    bool present;
    int group;
};

struct Thread {
    dim3 index;
    bool finished = false;
    const char* waits_at = nullptr;  // the barrier's place in the source, null while running
    bool waits_for_warp = false;
    int groups_committed = 0;
    std::vector<PendingCopy> copies;
    unsigned shuffle_parity = 0;
};

struct Block {
    dim3 index, grid_size, size;
    std::vector<Thread> threads;
    std::function<void()> body;
    char* shared = nullptr;
    size_t shared_bytes = 0;
    std::string error;
    // What the lanes of a warp hand each other, twice: nobody can be two exchanges ahead.
    std::vector<char> mailbox[2];
};

constexpr size_t MAIL_BYTES = 64;

inline Block block;
inline int current = -1;
inline Stack main_stack;
inline std::vector<Stack> stacks;
inline const void* main_bottom = nullptr;
inline size_t main_bytes = 0;

inline void* stack_of(int thread) { return thread < 0 ? const_cast<void*>(main_bottom) : stacks[thread].memory; }

#if !SHIM_SANITIZED
inline void leap(jmp_buf from, jmp_buf to) {
    if (_setjmp(from) == 0) _longjmp(to, 1);
}
#endif

// Continues `to` (-1: the scheduler) and comes back when someone continues the caller.
inline void switch_to(int to) {
    Stack& from_stack = current < 0 ? main_stack : stacks[current];
    Stack* const to_stack = to < 0 ? &main_stack : &stacks[to];
    current = to;
#if SHIM_SANITIZED
    __sanitizer_start_switch_fiber(&from_stack.fake_stack, stack_of(to), to < 0 ? main_bytes : STACK_BYTES);
    swapcontext(&from_stack.start, &to_stack->start);
    __sanitizer_finish_switch_fiber(from_stack.fake_stack, nullptr, nullptr);
#else
    leap(from_stack.here, to_stack->here);
#endif
}

inline void thread_main() {
#if SHIM_SANITIZED
    __sanitizer_finish_switch_fiber(nullptr, &main_bottom, &main_bytes);
#else
    // Enrol, then wait for the first turn; the stack serves every later block too.
    if (_setjmp(stacks[current].here) == 0) _longjmp(main_stack.here, 1);
#endif
    for (;;) {
        block.body();
        block.threads[current].finished = true;
        switch_to(-1);
    }
}

inline void prepare_stacks(size_t count) {
    while (stacks.size() < count) {
        stacks.emplace_back();
        Stack& stack = stacks.back();
        stack.memory = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack.memory == MAP_FAILED) abort();
    }
    for (size_t i = 0; i < count; ++i) {
        Stack& stack = stacks[i];
        getcontext(&stack.start);
        stack.start.uc_stack.ss_sp = stack.memory;
        stack.start.uc_stack.ss_size = STACK_BYTES;
        stack.start.uc_link = nullptr;
        makecontext(&stack.start, thread_main, 0);
#if !SHIM_SANITIZED
        current = static_cast<int>(i);
        if (_setjmp(main_stack.here) == 0) setcontext(&stack.start);
        current = -1;
#endif
    }
}

inline void wait_at(const char* place, bool for_warp) {
    Thread& thread = block.threads[current];
    thread.waits_at = place;
    thread.waits_for_warp = for_warp;
    switch_to(-1);
}

inline void fail(const std::string& message) {
    if (block.error.empty()) block.error = message;
}

// Releases [first, last) if all of it waits at one barrier of its kind.
inline bool release(size_t first, size_t last, bool for_warp) {
    for (size_t i = first; i < last; ++i) {
        const Thread& thread = block.threads[i];
        if (thread.waits_at == nullptr || thread.waits_for_warp != for_warp) return false;
        if (strcmp(thread.waits_at, block.threads[first].waits_at) != 0) {
            fail(std::string("divergent barrier: ") + block.threads[first].waits_at + " and " + thread.waits_at);
            return false;
        }
    }
    for (size_t i = first; i < last; ++i) block.threads[i].waits_at = nullptr;
    return true;
}

inline void run_block(bool backwards) {
    const size_t count = block.threads.size();
    for (;;) {
        bool progress = false;
        size_t finished = 0;
        for (size_t turn = 0; turn < count; ++turn) {
            const size_t i = backwards ? count - 1 - turn : turn;
            Thread& thread = block.threads[i];
            if (!thread.finished && thread.waits_at == nullptr) {
                switch_to(static_cast<int>(i));
                progress = true;
            }
            finished += thread.finished;
        }
        if (finished == count) return;
        if (release(0, count, false)) continue;
        for (size_t first = 0; first < count; first += 32) progress |= release(first, std::min(first + 32, count), true);
        if (!progress && block.error.empty()) {
            const char* place = "";
            size_t waiting = 0;
            for (const Thread& thread : block.threads)
                if (thread.waits_at != nullptr) ++waiting, place = thread.waits_at;
            fail("divergent barrier: " + std::to_string(waiting) + " of " + std::to_string(count) + " threads wait at " + place);
        }
        if (!block.error.empty()) return;
    }
}

// The block's shared memory: the first thread to ask gets it made, poisoned and exactly as large as asked for.
inline void* shared_memory(size_t bytes) {
    if (block.shared == nullptr) {
        if (posix_memalign(reinterpret_cast<void**>(&block.shared), 16, bytes) != 0) abort();
        memset(block.shared, 0xff, bytes);
        block.shared_bytes = bytes;
    }
    if (bytes != block.shared_bytes) fail("a kernel may ask for shared memory once");
    return block.shared;
}

// Every lane of the warp leaves `mine` and reads what `lane` left.
struct Exchange {
    char* mail;
    template <typename V>
    V from(unsigned lane) const {
        V value;
        memcpy(&value, mail + lane * MAIL_BYTES, sizeof(V));
        return value;
    }
};

template <typename V>
inline Exchange exchange(const V& mine, const char* place) {
    static_assert(sizeof(V) <= MAIL_BYTES);
    Thread& thread = block.threads[current];
    std::vector<char>& box = block.mailbox[thread.shuffle_parity ^= 1];
    const size_t warp = current / 32 * 32;
    memcpy(box.data() + current * MAIL_BYTES, &mine, sizeof(V));
    wait_at(place, true);
    return {box.data() + warp * MAIL_BYTES};
}

// Runs a grid, block after block; returns an empty string or what went wrong.
inline std::string run_grid(dim3 grid, unsigned threads, bool backwards, const std::function<void()>& body) {
    prepare_stacks(threads);
    block.body = body;
    block.error.clear();
    block.grid_size = grid;
    block.size = {threads, 1, 1};
    const size_t total = size_t(grid.x) * grid.y * grid.z;
    for (size_t turn = 0; turn < total && block.error.empty(); ++turn) {
        const size_t i = backwards ? total - 1 - turn : turn;
        block.index = {unsigned(i % grid.x), unsigned(i / grid.x % grid.y), unsigned(i / grid.x / grid.y)};
        block.threads.assign(threads, Thread());
        for (unsigned t = 0; t < threads; ++t) block.threads[t].index = {t, 0, 0};
        for (auto& box : block.mailbox) box.assign(threads * MAIL_BYTES, char(0xff));
        run_block(backwards);
        free(block.shared);
        block.shared = nullptr;
    }
    return block.error;
}

}  // namespace shim
