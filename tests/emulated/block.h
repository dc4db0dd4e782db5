// SPDX-License-Identifier: MIT
// The state that the threads of an emulated block share. Each is a fiber of one system thread
// (scheduler.h). A thread that breaks a rule ends the launch with a message (fail).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

namespace emulated
{

// Where in the kernels something is called.
struct site {
    const char *file;
    int line;
};
// The last parameter of what is called there.
#define EMULATED_HERE emulated::site where = {__builtin_FILE(), __builtin_LINE()}

// These do not change while a thread runs. They are functions and not variables, so that a race
// detector does not take them for shared memory.
#define CONV_EMULATED_CONST __attribute__((const))
CONV_EMULATED_CONST dim3 thread_index();
CONV_EMULATED_CONST dim3 block_index();
CONV_EMULATED_CONST dim3 block_shape();
CONV_EMULATED_CONST dim3 grid_shape();
CONV_EMULATED_CONST int lane();

// Lets other threads run, of other blocks as well, before the caller looks for what another block
// writes. Fails if none has done anything else for long.
void look();
// Lets other threads run at times, after an atomic operation on memory of the device.
void yield_at_times(const void *p);

// --- shared memory -------------------------------------------------------------------------------
// Filled with noise when a block begins; after its end comes the address sanitizer's guard.

void *dynamic_shared();
void *find_static_shared(const void *key, size_t size);

template <typename Type, int LINE> Type &static_shared()
{
    static const char key = 0; // one for each declaration of each instance of a kernel
    return *(Type *)find_static_shared(&key, sizeof(Type));
}

// To the 32-bit addresses of PTX.
size_t shared_offset(const void *p);

// --- barriers and collectives --------------------------------------------------------------------

// All threads that have not returned. Fails if they meet at different places.
void meet_block(site where);
// The same; true for all if it is for one.
bool meet_block_with(site where, bool value);

// A collective of a warp in progress.
struct meeting;
#define CONV_EMULATED_WORDS 4

// All lanes of the mask meet, each with `words` 8-byte words. Fails if one of them has returned or
// is in another collective.
meeting *meet_warp(site where, uint32_t mask, const uint64_t *words, int count);
const uint64_t *words_of(const meeting *meeting); // of lane 0; the other lanes' follow
void leave_warp(meeting *meeting);

// The arguments of all lanes of a collective.
template <typename Value> class lanes
{
  public:
    explicit lanes(meeting *meeting) : meeting_(meeting), words_(words_of(meeting))
    {
    }
    lanes(const lanes &) = delete;
    ~lanes()
    {
        leave_warp(meeting_);
    }
    const Value &operator[](int lane) const // no copy: of a fragment, one word is needed
    {
        static_assert(alignof(Value) <= alignof(uint64_t), "words are aligned for it");
        return *(const Value *)(words_ + lane * CONV_EMULATED_WORDS);
    }

  private:
    meeting *meeting_;
    const uint64_t *words_;
};

template <typename Value> lanes<Value> exchange(site where, uint32_t mask, Value mine)
{
    uint64_t words[CONV_EMULATED_WORDS] = {0};
    static_assert(sizeof mine <= sizeof words, "room for a lane's part");
    memcpy(words, &mine, sizeof mine);
    return lanes<Value>(meet_warp(where, mask, words, (int)(sizeof mine + 7) / 8));
}

// The lane that elect.sync chooses: some lane, always the same one during a launch.
int leader(uint32_t mask);

// --- copies of a thread (cuda_pipeline.h) --------------------------------------------------------

// `zeros`: 0, or `size` to write zeros.
void copy_later(void *to, const void *from, size_t size, size_t zeros);
void commit_copies();
void finish_copies(unsigned groups);

// Fails unless `size` bytes at p are aligned and in one allocation of device memory.
void check_global(const void *p, size_t size, size_t align);

} // namespace emulated
