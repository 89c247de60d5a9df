/* Packing of overlapping slices on lanes. `packing.py` calls it.

   It is compiled because a merge where 2,000 ranges overlap takes 46 s of CPU with numpy, against 7. Its definition is a
   plain loop in tests/output/test_packing.py. No function keeps a pointer. Each returns -1 where memory is short, and -2 where a
   row is not one of `count`, before it writes anything. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

static void *room(int64_t count, size_t size) { return malloc((size_t)(count ? count : 1) * size); }

/* Return whether all rows are from `least` to `count` - 1. */
static int are_rows(int64_t count, const int64_t *rows, int64_t least) {
    for (int64_t at = 0; at < count; at++)
        if (rows[at] < least || rows[at] >= count) return 0;
    return 1;
}

/* ---- Lanes: the ends of the slices last put on each, in a tree of minima whose leaves are the lanes. ---- */

typedef struct {
    int64_t *least; /* 2 * size; node k has the children 2k and 2k + 1, lane i is node size + i */
    int64_t size;   /* a power of two */
} Lanes;

static int lanes_open(Lanes *lanes, int64_t size) {
    lanes->size = size;
    lanes->least = malloc((size_t)(2 * size) * sizeof(int64_t));
    if (!lanes->least) return -1;
    for (int64_t node = 0; node < 2 * size; node++) lanes->least[node] = INT64_MIN;
    return 0;
}

static int lanes_grow(Lanes *lanes) {
    Lanes larger;
    if (lanes_open(&larger, 2 * lanes->size)) return -1;
    memcpy(larger.least + larger.size, lanes->least + lanes->size, (size_t)lanes->size * sizeof(int64_t));
    for (int64_t node = larger.size - 1; node >= 1; node--) {
        int64_t left = larger.least[2 * node], right = larger.least[2 * node + 1];
        larger.least[node] = left < right ? left : right;
    }
    free(lanes->least);
    *lanes = larger;
    return 0;
}

/* Return the first lane from `from` on that is free at `time`; -1 if all are taken. */
static int64_t lanes_find(const Lanes *lanes, int64_t from, int64_t time) {
    if (from >= lanes->size) return -1;
    int64_t node = lanes->size + from;
    while (lanes->least[node] > time) { /* up, to the next subtree on the right */
        while (node & 1) node >>= 1;
        if (node == 0) return -1;
        node++;
    }
    while (node < lanes->size) {
        node *= 2;
        if (lanes->least[node] > time) node++;
    }
    return node - lanes->size;
}

static void lanes_set(Lanes *lanes, int64_t lane, int64_t end) {
    int64_t node = lanes->size + lane;
    lanes->least[node] = end;
    for (node >>= 1; node >= 1; node >>= 1) {
        int64_t left = lanes->least[2 * node], right = lanes->least[2 * node + 1];
        lanes->least[node] = left < right ? left : right;
    }
}

/* Find a lane like `lanes_find`, with more lanes where all are taken; -1 where memory is short. */
static int64_t lanes_take(Lanes *lanes, int64_t from, int64_t time) {
    int64_t lane;
    while ((lane = lanes_find(lanes, from, time)) < 0)
        if (lanes_grow(lanes)) return -1;
    return lane;
}

/* Put each slice on the first lane that is free at its start.
   order: all rows, by start, then end. */
API int64_t pack_flat(
    int64_t count, const int64_t *order, const int64_t *start, const int64_t *end, int64_t *lane_of
) {
    Lanes lanes;
    if (!are_rows(count, order, 0)) return -2;
    if (lanes_open(&lanes, 64)) return -1;
    for (int64_t number = 0; number < count; number++) {
        int64_t row = order[number], lane = lanes_take(&lanes, 0, start[row]);
        if (lane < 0) {
            free(lanes.least);
            return -1;
        }
        lane_of[row] = lane;
        lanes_set(&lanes, lane, end[row]);
    }
    free(lanes.least);
    return 0;
}

/* ---- Heaps of slices that begin together, the least key first. ---- */

typedef struct {
    int64_t key, row;
} Entry;

typedef struct {
    Entry *entries;
    int64_t count;
} Heap;

static void heap_push(Heap *heap, int64_t key, int64_t row) {
    int64_t at = heap->count++;
    for (; at > 0 && heap->entries[(at - 1) / 2].key > key; at = (at - 1) / 2)
        heap->entries[at] = heap->entries[(at - 1) / 2];
    heap->entries[at] = (Entry){key, row};
}

static Entry heap_pop(Heap *heap) {
    Entry least = heap->entries[0], last = heap->entries[--heap->count];
    int64_t at = 0, child;
    while ((child = 2 * at + 1) < heap->count) {
        if (child + 1 < heap->count && heap->entries[child + 1].key < heap->entries[child].key) child++;
        if (heap->entries[child].key >= last.key) break;
        heap->entries[at] = heap->entries[child];
        at = child;
    }
    heap->entries[at] = last;
    return least;
}

/* ---- Nested slices. ---- */

typedef struct {
    const int64_t *start, *end, *rank; /* rank: position of a row in the order of (start, end) */
    int64_t *above, *lane_of;
    int64_t *child, *sibling; /* first child of a row, next child of the same parent; -1: none */
    int64_t *least_lane;      /* of a slice without a slice around it: -1 as long as it is not known */
    int64_t *stack;
    uint8_t *is_moved; /* it overlaps an earlier child of its parent */
    Lanes lanes;
    Heap waiting, ready; /* slices that begin together: by least lane; by rank, those that may have the next lane */
} Nested;

/* Put a slice and all slices inside it on a lane. Children that do not fit go to a later lane. */
static void nested_place(Nested *nested, int64_t root, int64_t lane) {
    int64_t depth = 0;
    nested->stack[depth++] = root;
    while (depth) {
        int64_t row = nested->stack[--depth];
        nested->lane_of[row] = lane;
        for (int64_t child = nested->child[row]; child >= 0; child = nested->sibling[child]) {
            if (!nested->is_moved[child]) {
                nested->stack[depth++] = child;
                continue;
            }
            nested->least_lane[child] = lane + 1;
            if (nested->start[child] == nested->start[root]) heap_push(&nested->waiting, lane + 1, child);
        }
    }
    lanes_set(&nested->lanes, lane, nested->end[root]);
}

/* Put all slices in `waiting`, which begin together, on lanes: each lane has the first of those that may have it. */
static int64_t nested_place_together(Nested *nested, int64_t time) {
    int64_t lane = 0;
    while (nested->waiting.count || nested->ready.count) {
        if (!nested->ready.count && nested->waiting.entries[0].key > lane) lane = nested->waiting.entries[0].key;
        lane = lanes_take(&nested->lanes, lane, time);
        if (lane < 0) return -1;
        while (nested->waiting.count && nested->waiting.entries[0].key <= lane) {
            int64_t row = heap_pop(&nested->waiting).row;
            heap_push(&nested->ready, nested->rank[row], row);
        }
        nested_place(nested, heap_pop(&nested->ready).row, lane);
    }
    return 0;
}

static int64_t nested_run(Nested *nested, int64_t count, const int64_t *order) {
    int64_t *last_end = nested->stack; /* of the children of each row that fit; the stack is not needed yet */
    for (int64_t row = 0; row < count; row++) {
        last_end[row] = INT64_MIN;
        nested->child[row] = -1;
    }
    for (int64_t number = 0; number < count; number++) {
        int64_t row = order[number], parent = nested->above[row];
        nested->least_lane[row] = parent < 0 ? 0 : -1;
        nested->is_moved[row] = 0;
        if (parent < 0) continue;
        nested->is_moved[row] = nested->start[row] < last_end[parent];
        if (!nested->is_moved[row]) last_end[parent] = nested->end[row];
        nested->sibling[row] = nested->child[parent];
        nested->child[parent] = row;
    }
    for (int64_t first = 0, stop; first < count; first = stop) {
        int64_t time = nested->start[order[first]];
        for (stop = first; stop < count && nested->start[order[stop]] == time; stop++) {
            int64_t row = order[stop];
            int is_root = nested->above[row] < 0 || nested->is_moved[row];
            if (is_root && nested->least_lane[row] >= 0)
                heap_push(&nested->waiting, nested->least_lane[row], row);
        }
        if (nested_place_together(nested, time)) return -1;
    }
    for (int64_t row = 0; row < count; row++)
        if (nested->is_moved[row]) nested->above[row] = -1;
    return 0;
}

/* Put slices on lanes of nested slices: see `pack_nested` in `packing.py`.
   order: all rows, by start, then end. rank: its inverse.
   above: row of the slice around each, -1 for none, without cycles; the slices that leave it get -1. */
API int64_t pack_nested(
    int64_t count, const int64_t *order, const int64_t *rank, const int64_t *start, const int64_t *end,
    int64_t *above, int64_t *lane_of
) {
    Nested nested = {.start = start, .end = end, .rank = rank, .above = above, .lane_of = lane_of};
    int64_t result = -1;
    if (!are_rows(count, order, 0) || !are_rows(count, rank, 0) || !are_rows(count, above, -1)) return -2;
    nested.child = room(count, sizeof(int64_t));
    nested.sibling = room(count, sizeof(int64_t));
    nested.least_lane = room(count, sizeof(int64_t));
    nested.stack = room(count, sizeof(int64_t));
    nested.is_moved = room(count, 1);
    nested.waiting.entries = room(count, sizeof(Entry));
    nested.ready.entries = room(count, sizeof(Entry));
    if (nested.child && nested.sibling && nested.least_lane && nested.stack && nested.is_moved &&
        nested.waiting.entries && nested.ready.entries && !lanes_open(&nested.lanes, 64)) {
        result = nested_run(&nested, count, order);
        free(nested.lanes.least);
    }
    free(nested.child);
    free(nested.sibling);
    free(nested.least_lane);
    free(nested.stack);
    free(nested.is_moved);
    free(nested.waiting.entries);
    free(nested.ready.entries);
    return result;
}
