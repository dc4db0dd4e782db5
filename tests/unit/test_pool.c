// SPDX-License-Identifier: MIT
// Staging memory: the limit always holds, reserved memory is available, and a single image is
// always served.
#include "run/pool.h"
#include "support/random.h"
#include "support/unit.h"

#define SLOTS 7
#define LIMIT ((size_t)1 << 20)

static uint64_t seed;

static size_t draw(size_t most)
{
    return random_below(&seed, (unsigned)most + 1);
}

static void open_pool(struct conv_pool *pool, size_t group_bytes)
{
    static const struct conv_device_ops ops = {.name = "none"};
    *pool = (struct conv_pool){
        .ops = &ops,
        .limit = LIMIT,
        .usual_bytes = group_bytes,
        .keep = SIZE_MAX,
        .codes = true,
    };
    struct conv_err err;
    assert_ok(conv_pool_open(pool, SLOTS, SLOTS, &err));
}

static void check(const struct conv_pool *pool)
{
    size_t used = 0, kept = 0;
    for (int i = 0; i < 2 * SLOTS; i++)
        used += pool->buffers[i].bytes;
    for (int i = 0; i < SLOTS; i++)
        kept += pool->slots[i].reserved_out + pool->slots[i].metadata;
    assert_int_equal(used, pool->used);
    assert_int_equal(kept, pool->reserved);
    assert_true(used + kept <= LIMIT);
}

static struct conv_pool_need draw_need(size_t most)
{
    size_t planes = 1 + draw(most);
    struct conv_pool_need need = {
        .room = {.planes = planes, .in = planes},
        .metadata = draw(9) ? 0 : draw(1000),
        .device_coded = draw(1),
    };
    if (need.device_coded)
        need.room.in = 1 + draw(planes);
    return need;
}

// Slots in every state, taken and released in any order.
UNIT_TEST(test_the_limit_holds)
{
    for (seed = 1; seed < 40; seed++) {
        struct conv_pool pool;
        struct conv_err err;
        uint64_t begin = seed;
        open_pool(&pool, draw(LIMIT / 8));
        for (int step = 0; step < 2000; step++) {
            struct conv_slot *slot = &pool.slots[draw(SLOTS - 1)];
            struct conv_pool_need need = draw_need(draw(3) ? LIMIT / 20 : LIMIT / 3);
            if (slot->state == CONV_SLOT_FREE) {
                assert_ok(conv_pool_acquire(&pool, &need, &slot, &err));
                if (slot) {
                    assert_true(slot->group.in_capacity >= need.room.in);
                    assert_true(slot->group.capacity >= need.room.planes);
                    assert_int_equal(slot->out == NULL, need.device_coded);
                }
            } else if (slot->reserved_out && draw(1)) {
                conv_pool_release_in(&pool, slot);
                size_t bytes = 1 + draw(slot->group.capacity - 1);
                assert_ok(conv_pool_acquire_out(&pool, slot, bytes, &err));
                assert_true(slot->out->bytes >= bytes);
                slot->group.h_out[bytes - 1] = 1;
            } else {
                conv_pool_release(&pool, slot);
            }
            check(&pool);
        }
        conv_pool_close(&pool);
        seed = begin;
    }
}

UNIT_TEST(test_who_is_alone_is_served)
{
    struct conv_pool pool;
    struct conv_err err;
    struct conv_slot *slot;
    open_pool(&pool, LIMIT / 4);
    for (seed = 1; seed < 500; seed++) {
        uint64_t begin = seed;
        struct conv_pool_need need = draw_need(LIMIT);
        if (!conv_pool_is_too_much(&pool, &need)) {
            assert_ok(conv_pool_acquire(&pool, &need, &slot, &err));
            assert_non_null(slot);
            conv_pool_release(&pool, slot);
        } else {
            assert_int_equal(conv_pool_acquire(&pool, &need, &slot, &err), CONV_ERR_LIMIT);
        }
        seed = begin;
    }
    conv_pool_close(&pool);
}

UNIT_TEST(test_a_buffer_serves_the_next)
{
    struct conv_pool pool;
    struct conv_err err;
    struct conv_slot *first, *second;
    struct conv_pool_need need = {{1000, 500}, 0, true};
    open_pool(&pool, 1000);
    pool.usual_bytes = 1000; // which is too little for the pool's own steps
    assert_ok(conv_pool_acquire(&pool, &need, &first, &err));
    const uint8_t *memory = first->group.h_in;
    conv_pool_release_in(&pool, first);
    assert_null(first->group.h_in);
    assert_ok(conv_pool_acquire(&pool, &need, &second, &err));
    assert_ptr_equal(second->group.h_in, memory);
    assert_int_equal(pool.used, 1000);
    conv_pool_close(&pool);
}

UNIT_TEST(test_only_free_memory_is_given_up)
{
    struct conv_pool pool;
    struct conv_err err;
    struct conv_slot *slot, *busy;
    struct conv_pool_buffer buffer;
    struct conv_pool_need need = {{1000, 500}, 0, true};
    open_pool(&pool, 1000);
    pool.usual_bytes = 1000;
    assert_false(conv_pool_detach(&pool, &buffer));
    assert_ok(conv_pool_acquire(&pool, &need, &busy, &err));
    assert_ok(conv_pool_acquire(&pool, &need, &slot, &err));
    const uint8_t *memory = slot->group.h_in;
    conv_pool_release(&pool, slot);
    assert_true(conv_pool_detach(&pool, &buffer));
    assert_ptr_equal(buffer.data, memory);
    assert_int_equal(pool.used, 1000);
    conv_pool_free_buffer(&pool, &buffer);
    assert_false(conv_pool_detach(&pool, &buffer)); // the other one is in use
    assert_ok(conv_pool_acquire(&pool, &need, &slot, &err));
    assert_int_equal(pool.used, 2000); // memory that is needed again is allocated again
    conv_pool_close(&pool);
}

static int count_slots(struct conv_pool *pool)
{
    struct conv_err err;
    struct conv_slot *slot;
    struct conv_pool_need need = {{10, 10}, 0, true};
    int count = 0;
    while (conv_pool_acquire(pool, &need, &slot, &err) == CONV_OK && slot)
        count++;
    for (int i = 0; i < pool->count; i++)
        if (pool->slots[i].state == CONV_SLOT_OPEN)
            conv_pool_release(pool, &pool->slots[i]);
    return count;
}

UNIT_TEST(test_further_slots_are_lent)
{
    struct conv_pool pool = {
        .ops = &conv_device_cpu, .limit = 1 << 20, .keep = SIZE_MAX, .codes = true};
    struct conv_err err;
    assert_ok(conv_pool_open(&pool, 2, 5, &err));
    assert_int_equal(count_slots(&pool), 2);
    assert_int_equal(conv_pool_add_slots(&pool, 2), 2);
    assert_int_equal(count_slots(&pool), 4);
    assert_int_equal(conv_pool_add_slots(&pool, 2), 1); // there are no more
    assert_int_equal(count_slots(&pool), 5);
    conv_pool_take_back_slots(&pool, 2);
    assert_int_equal(count_slots(&pool), 3);
    conv_pool_close(&pool);
}

UNIT_MAIN(NULL, NULL)
