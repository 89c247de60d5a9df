/* Array functions where numpy would need many passes. `core.py` calls them, and checks every length and index before.

   No function reads a file, keeps a pointer (but those of paged memory, to what it allocated) or calls back. Each returns
   0 or a count, -1 where memory is short, or 1 where its input is not of the kind that it is for. The numpy functions of
   their callers are their definition: without this library, the same results take longer. */

#define _GNU_SOURCE /* madvise, fallocate, O_TMPFILE */

#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

API int64_t core_version(void) { return 20; }

/* ---- Memory. ---- */

#define HUGE_PAGE ((size_t)1 << 21)
#define PAGE ((size_t)4096) /* at most: maps begin at a multiple of it */
#define MOST_MAPS 4096
#define MOST_FREE ((size_t)1 << 30) /* bytes of free maps */

/* Paged memory: large arrays in files without a name, of which `core_drop_pages` takes the pages from this process. They stay
   in the system's cache, which writes them to the disk where memory is short. Maps are used again: new pages take the system
   several times as long as those that it has. Closed at first: `least` is 0. */
static struct {
    atomic_flag is_locked;
    _Atomic size_t least; /* bytes of an array in a file */
    char folder[4096];
    int64_t count;
    size_t free_bytes;
    struct {
        void *address;
        size_t bytes;
        int is_free;
    } maps[MOST_MAPS];
} paged = {.is_locked = ATOMIC_FLAG_INIT};

static void lock_maps(void) {
    while (atomic_flag_test_and_set(&paged.is_locked)) sched_yield();
}

static void unlock_maps(void) { atomic_flag_clear(&paged.is_locked); }

/* Take the smallest free map with so many bytes that has at most twice as many; NULL without one. */
static void *take_free_map(size_t bytes) {
    int64_t best = -1;
    lock_maps();
    for (int64_t number = 0; number < paged.count; number++) {
        size_t size = paged.maps[number].bytes;
        if (!paged.maps[number].is_free || size < bytes || size / 2 > bytes) continue;
        if (best < 0 || size < paged.maps[best].bytes) best = number;
    }
    void *room = best < 0 ? NULL : paged.maps[best].address;
    if (room) {
        paged.maps[best].is_free = 0;
        paged.free_bytes -= paged.maps[best].bytes;
    }
    unlock_maps();
    return room;
}

/* Map a new file of zeros; NULL where that is impossible: the disk is full, or of a kind that cannot reserve space. */
static void *map_new_file(size_t bytes) {
#if defined(O_TMPFILE) && defined(__linux__)
    int file = open(paged.folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0) return NULL;
    void *room = MAP_FAILED; /* reserved: a full disk would end the process at the first use of a page */
    if (!fallocate(file, 0, 0, (off_t)bytes)) room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (room == MAP_FAILED) return NULL;
    lock_maps();
    int is_full = paged.count == MOST_MAPS;
    if (!is_full) {
        paged.maps[paged.count].address = room;
        paged.maps[paged.count].is_free = 0;
        paged.maps[paged.count++].bytes = bytes;
    }
    unlock_maps();
    if (!is_full) return room;
    munmap(room, bytes);
#else
    (void)bytes;
#endif
    return NULL;
}

/* Map a file; NULL where that is impossible. */
static void *map_file(size_t bytes, int is_zero) {
    bytes = (bytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
    void *room = take_free_map(bytes);
    if (room) return is_zero ? memset(room, 0, bytes) : room;
    return map_new_file(bytes);
}

/* Return the bytes of a map in use, 0 for other memory. */
static size_t find_map(const void *address) {
    if ((uintptr_t)address % PAGE) return 0;
    size_t bytes = 0;
    lock_maps();
    for (int64_t number = paged.count; number-- > 0 && !bytes;)
        if (paged.maps[number].address == address && !paged.maps[number].is_free) bytes = paged.maps[number].bytes;
    unlock_maps();
    return bytes;
}

/* Free a map, or keep it for later while paged memory is open; return 0 for other memory. */
static int release_map(void *address) {
    if ((uintptr_t)address % PAGE) return 0;
    int is_found = 0;
    size_t bytes = 0; /* to unmap */
    lock_maps();
    for (int64_t number = paged.count; number-- > 0 && !is_found;) {
        if (paged.maps[number].address != address) continue;
        is_found = 1;
        if (paged.least && paged.free_bytes + paged.maps[number].bytes <= MOST_FREE) {
            paged.maps[number].is_free = 1;
            paged.free_bytes += paged.maps[number].bytes;
        } else {
            bytes = paged.maps[number].bytes;
            paged.maps[number] = paged.maps[--paged.count];
        }
    }
    unlock_maps();
    if (bytes) munmap(address, bytes);
    return is_found;
}

static void release(void *address) {
    if (!address || !release_map(address)) free(address);
}

/* Allocate `count` items like malloc, in a file if they are many and paged memory is open; else many in huge pages where
   there are any, as numpy does: the first use of each small page costs as much as sorting what is in it. */
static void *allocate(int64_t count, size_t size) {
    size_t bytes = (size_t)(count ? count : 1) * size, least = paged.least;
    void *room = least && bytes >= least ? map_file(bytes, 0) : NULL;
    if (room) return room;
    if (bytes < 2 * HUGE_PAGE) return malloc(bytes);
    bytes = (bytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
    room = aligned_alloc(HUGE_PAGE, bytes);
#ifdef MADV_HUGEPAGE
    if (room) madvise(room, bytes, MADV_HUGEPAGE); /* without it, only slower */
#endif
    return room;
}

static void *allocate_zeros(int64_t count, size_t size) {
    void *room = allocate(count, size);
    return room ? memset(room, 0, (size_t)(count ? count : 1) * size) : NULL;
}

/* numpy's interface of allocators, in words of its `ndarraytypes.h` (NEP 49). */
typedef struct {
    char name[127];
    uint8_t version;
    struct {
        void *context;
        void *(*malloc)(void *context, size_t bytes);
        void *(*calloc)(void *context, size_t count, size_t size);
        void *(*realloc)(void *context, void *address, size_t bytes);
        void (*free)(void *context, void *address, size_t bytes);
    } allocator;
} Handler;

static void *allocate_array(void *context, size_t bytes) {
    (void)context;
    return allocate((int64_t)bytes, 1);
}

static void *allocate_zero_array(void *context, size_t count, size_t size) {
    (void)context;
    size_t bytes = count * size, least = paged.least; /* numpy has checked the product */
    void *room = least && bytes >= least ? map_file(bytes, 1) : NULL;
    return room ? room : calloc(count ? count : 1, size ? size : 1);
}

static void *resize_array(void *context, void *address, size_t bytes) {
    size_t before = address ? find_map(address) : 0;
    if (!before) return realloc(address, bytes ? bytes : 1);
    void *room = allocate_array(context, bytes);
    if (!room) return NULL;
    memcpy(room, address, before < bytes ? before : bytes);
    release(address);
    return room;
}

static void free_array(void *context, void *address, size_t bytes) {
    (void)context, (void)bytes;
    release(address);
}

static Handler handler = {
    "nsys_pp_paged", 1, {NULL, allocate_array, allocate_zero_array, resize_array, free_array}
};

/* Return numpy's allocator of paged memory. Arrays can be freed after it is closed. */
API const void *core_paged_handler(void) { return &handler; }

/* Open paged memory for arrays of at least so many bytes, with files in a folder; 0 bytes: close it. Return 1 if the name
   of the folder is too long. */
API int64_t core_open_paged(const char *folder, int64_t least) {
    size_t length = strlen(folder);
    if (length >= sizeof paged.folder) return 1;
    paged.least = 0;
    memcpy(paged.folder, folder, length + 1);
    lock_maps();
    for (int64_t number = paged.count; number-- > 0;) { /* those of another folder, or of no more use */
        if (!paged.maps[number].is_free) continue;
        munmap(paged.maps[number].address, paged.maps[number].bytes);
        paged.maps[number] = paged.maps[--paged.count];
    }
    paged.free_bytes = 0;
    unlock_maps();
    paged.least = (size_t)least;
    return 0;
}

/* Take all pages of arrays in files from this process; return their bytes. */
API int64_t core_drop_pages(void) {
    int64_t bytes = 0;
    lock_maps();
    for (int64_t number = 0; number < paged.count; number++) {
        madvise(paged.maps[number].address, paged.maps[number].bytes, MADV_DONTNEED);
        bytes += (int64_t)paged.maps[number].bytes;
    }
    unlock_maps();
    return bytes;
}

/* Return whether an address is the begin of an array in a file. */
API int64_t core_is_paged(const void *address) { return find_map(address) > 0; }

/* Memory of `allocate` is freed by `release`. */
#pragma GCC poison free

/* ---- Order of rows by several keys: a merge sort of the runs that are in order, which are long in most reports. ---- */

typedef struct {
    int64_t count; /* of keys */
    const int64_t *const *keys;
} Keys;

/* Return whether row `a` comes after row `b`. */
static int comes_after(const Keys *keys, int64_t a, int64_t b) {
    for (int64_t number = 0; number < keys->count; number++) {
        int64_t of_a = keys->keys[number][a], of_b = keys->keys[number][b];
        if (of_a != of_b) return of_a > of_b;
    }
    return 0;
}

/* Merge the sorted rows [first, middle) and [middle, stop) of `order`; only those that are not at their place yet move. */
static void merge_runs(const Keys *keys, int64_t *order, int64_t *scratch, int64_t first, int64_t middle, int64_t stop) {
    int64_t low = first, high = middle, row = order[middle];
    while (low < high) { /* rows of the left run that stay before all of the right one */
        int64_t half = low + (high - low) / 2;
        if (comes_after(keys, order[half], row)) high = half;
        else low = half + 1;
    }
    if (low == middle) return;
    int64_t left_count = middle - low, right = middle, left = 0, at = low;
    memcpy(scratch, order + low, (size_t)left_count * sizeof(int64_t));
    while (left < left_count && right < stop) {
        if (comes_after(keys, scratch[left], order[right])) order[at++] = order[right++];
        else order[at++] = scratch[left++];
    }
    memcpy(order + at, scratch + left, (size_t)(left_count - left) * sizeof(int64_t));
}

/* Sort rows by the first key, then the next and so on; equal rows stay in order.
   order: receives all rows. scratch: as long. bounds: count + 1. */
API int64_t core_sort_rows(
    int64_t count, int64_t key_count, const int64_t *const *columns, int64_t *order, int64_t *scratch, int64_t *bounds
) {
    Keys keys = {key_count, columns};
    int64_t runs = 0;
    for (int64_t row = 0; row < count; row++) {
        order[row] = row;
        if (row == 0 || comes_after(&keys, row - 1, row)) bounds[runs++] = row;
    }
    bounds[runs] = count;
    while (runs > 1) {
        int64_t merged = 0;
        for (int64_t run = 0; run < runs; run += 2) {
            if (run + 1 < runs)
                merge_runs(&keys, order, scratch, bounds[run], bounds[run + 1], bounds[run + 2]);
            bounds[merged++] = bounds[run];
        }
        runs = merged;
        bounds[runs] = count;
    }
    return 0;
}

/* ---- Numbers of codes. ---- */

/* Number codes 1, 2, ... in order of appearance; `null` has number 0.
   number_of: a zero for each code below its length. first: receives the first row of each number. */
API int64_t core_number_codes(
    int64_t count, const uint32_t *codes, uint32_t null, uint32_t *number_of, uint32_t *numbers, int64_t *first
) {
    uint32_t distinct = 0;
    for (int64_t row = 0; row < count; row++) {
        uint32_t code = codes[row];
        if (code == null) {
            numbers[row] = 0;
            continue;
        }
        if (!number_of[code]) {
            first[distinct] = row;
            number_of[code] = ++distinct;
        }
        numbers[row] = number_of[code];
    }
    return distinct;
}

/* ---- Events of nested slices. ---- */

#define DEEPEST 512

/* Order the begin and end events of slices in pre-order; return 1 where depths are not in pre-order, or too deep.
   times: of all events, twice as many as slices. begin: number of the event that begins each slice. */
API int64_t core_order_events(
    int64_t count, const int64_t *start, const int64_t *end, const int32_t *depth, int64_t *times, int64_t *begin
) {
    int64_t ends[DEEPEST], open = 0, at = 0;
    for (int64_t row = 0; row < count; row++) {
        if (depth[row] < 0 || depth[row] > open || depth[row] >= DEEPEST) return 1;
        while (open > depth[row]) times[at++] = ends[--open];
        begin[row] = at;
        times[at++] = start[row];
        ends[open++] = end[row];
    }
    while (open) times[at++] = ends[--open];
    return 0;
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
    release(lanes->least);
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
API int64_t core_pack_flat(
    int64_t count, const int64_t *order, const int64_t *start, const int64_t *end, int64_t *lane_of
) {
    Lanes lanes;
    if (lanes_open(&lanes, 64)) return -1;
    for (int64_t number = 0; number < count; number++) {
        int64_t row = order[number], lane = lanes_take(&lanes, 0, start[row]);
        if (lane < 0) {
            release(lanes.least);
            return -1;
        }
        lane_of[row] = lane;
        lanes_set(&lanes, lane, end[row]);
    }
    release(lanes.least);
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

/* Put slices on lanes of nested slices: see `pack_nested` in `write/trace/packing.py`.
   order: all rows, by start, then end. rank: its inverse.
   above: row of the slice around each, -1 for none, without cycles; the slices that leave it get -1. */
API int64_t core_pack_nested(
    int64_t count, const int64_t *order, const int64_t *rank, const int64_t *start, const int64_t *end,
    int64_t *above, int64_t *lane_of
) {
    Nested nested = {.start = start, .end = end, .rank = rank, .above = above, .lane_of = lane_of};
    int64_t result = -1;
    nested.child = allocate(count, sizeof(int64_t));
    nested.sibling = allocate(count, sizeof(int64_t));
    nested.least_lane = allocate(count, sizeof(int64_t));
    nested.stack = allocate(count, sizeof(int64_t));
    nested.is_moved = allocate(count, 1);
    nested.waiting.entries = allocate(count, sizeof(Entry));
    nested.ready.entries = allocate(count, sizeof(Entry));
    if (nested.child && nested.sibling && nested.least_lane && nested.stack && nested.is_moved &&
        nested.waiting.entries && nested.ready.entries && !lanes_open(&nested.lanes, 64)) {
        result = nested_run(&nested, count, order);
        release(nested.lanes.least);
    }
    release(nested.child);
    release(nested.sibling);
    release(nested.least_lane);
    release(nested.stack);
    release(nested.is_moved);
    release(nested.waiting.entries);
    release(nested.ready.entries);
    return result;
}

/* ---- Owners: numbers of keys (threads, processes), in a hash table. ---- */

#define MOST_OWNERS 65536

typedef struct {
    int64_t *keys;     /* by number */
    uint32_t *numbers; /* by slot: number + 1, 0 where the slot is free; as many slots as two to the `bits` */
    int64_t count;
    int bits;
} Owners;

static size_t owners_slot(const Owners *owners, int64_t key) {
    size_t mask = ((size_t)1 << owners->bits) - 1;
    size_t slot = (size_t)(((uint64_t)key * 0x9E3779B97F4A7C15u) >> (64 - owners->bits));
    while (owners->numbers[slot] && owners->keys[owners->numbers[slot] - 1] != key) slot = (slot + 1) & mask;
    return slot;
}

static void owners_close(Owners *owners) {
    release(owners->keys);
    release(owners->numbers);
}

static int owners_resize(Owners *owners, int bits) {
    int64_t *keys = realloc(owners->keys, sizeof(int64_t) << (bits - 1)); /* at most half of the slots are taken */
    if (!keys) return -1;
    owners->keys = keys;
    uint32_t *numbers = calloc((size_t)1 << bits, sizeof(uint32_t));
    if (!numbers) return -1;
    release(owners->numbers);
    owners->numbers = numbers;
    owners->bits = bits;
    for (int64_t number = 0; number < owners->count; number++)
        numbers[owners_slot(owners, keys[number])] = (uint32_t)number + 1;
    return 0;
}

static int owners_open(Owners *owners) {
    *owners = (Owners){0};
    return owners_resize(owners, 6);
}

/* Return the number of a key; -1 for an unknown one. */
static int64_t owners_find(const Owners *owners, int64_t key) {
    return (int64_t)owners->numbers[owners_slot(owners, key)] - 1;
}

/* Return the number of a key, the next one for an unknown one; -1 where memory is short. */
static int64_t owners_add(Owners *owners, int64_t key) {
    size_t slot = owners_slot(owners, key);
    if (owners->numbers[slot]) return (int64_t)owners->numbers[slot] - 1;
    if (owners->count == (int64_t)1 << (owners->bits - 1)) {
        if (owners_resize(owners, owners->bits + 1)) return -1;
        slot = owners_slot(owners, key);
    }
    owners->keys[owners->count] = key;
    owners->numbers[slot] = (uint32_t)++owners->count;
    return owners->count - 1;
}

/* Find the first row of each key, ascending; return 1 where the keys are too many.
   first_row: room for as many as `count`, at most MOST_OWNERS. found: their number. */
API int64_t core_find_first_rows(int64_t count, const int64_t *key, int64_t *first_row, int64_t *found) {
    Owners owners;
    int64_t result = owners_open(&owners);
    for (int64_t row = 0; row < count && !result; row++) {
        if (row && key[row] == key[row - 1]) continue;
        int64_t known = owners.count, number = owners_add(&owners, key[row]);
        if (number < 0) result = -1;
        else if (number >= MOST_OWNERS) result = 1;
        else if (number == known) first_row[number] = row;
    }
    *found = owners.count;
    owners_close(&owners);
    return result;
}

/* Number keys 0, 1, ... in order of appearance; return 1 where they are too many. `first_row` and `found`: as above. */
API int64_t core_number_keys(
    int64_t count, const int64_t *key, uint32_t *number_of, int64_t *first_row, int64_t *found
) {
    Owners owners;
    int64_t result = owners_open(&owners);
    for (int64_t row = 0; row < count && !result; row++) {
        int64_t known = owners.count, number = owners_add(&owners, key[row]);
        if (number < 0) result = -1;
        else if (number >= MOST_OWNERS) result = 1;
        else number_of[row] = (uint32_t)number;
        if (!result && number == known) first_row[number] = row;
    }
    *found = owners.count;
    owners_close(&owners);
    return result;
}

/* ---- Order of rows by owner, then time, where the rows of each owner are in order of time already. ---- */

static int compare_keys(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* Fill `order` from the numbers of owners; return whether the rows of an owner are not in order of time. */
static int64_t order_numbered(
    int64_t count, const Owners *owners, const uint16_t *number_of, int64_t *next, const int64_t *time,
    const int64_t *second, int is_descending, int64_t *last, int64_t *order
) {
    int is_mixed = 0;
    for (int64_t number = 0; number < owners->count; number++) last[number] = -1;
    for (int64_t row = 0; row < count; row++) {
        int64_t number = number_of[row], before = last[number];
        if (before >= 0 && time[before] >= time[row])
            is_mixed |= time[before] > time[row] ||
                        (is_descending ? second[before] < second[row] : second[before] > second[row]);
        last[number] = row;
        order[next[number]++] = row;
    }
    return is_mixed;
}

/* Order rows by owner, stable; return 1 where that is not their order by owner, time and second key, or where the
   owners are too many. is_descending: of the second key. */
API int64_t core_order_by_time(
    int64_t count, const int64_t *owner, const int64_t *time, const int64_t *second, int64_t is_descending,
    int64_t *order
) {
    Owners owners;
    int64_t result = owners_open(&owners), *keys = NULL, *next = NULL, *last = NULL, *sizes = NULL;
    uint16_t *number_of = allocate(count, sizeof(uint16_t));
    if (!number_of) result = -1;
    for (int64_t row = 0; row < count && !result; row++) {
        int64_t number = row && owner[row] == owner[row - 1] ? number_of[row - 1] : owners_add(&owners, owner[row]);
        if (number < 0) result = -1;
        else if (number >= MOST_OWNERS) result = 1;
        else number_of[row] = (uint16_t)number;
    }
    if (!result) {
        keys = allocate(owners.count, sizeof(int64_t));
        next = allocate(owners.count, sizeof(int64_t));
        last = allocate(owners.count, sizeof(int64_t));
        sizes = allocate_zeros(owners.count, sizeof(int64_t));
        result = keys && next && last && sizes ? 0 : -1;
    }
    if (!result) {
        memcpy(keys, owners.keys, (size_t)owners.count * sizeof(int64_t));
        qsort(keys, (size_t)owners.count, sizeof(int64_t), compare_keys);
        for (int64_t row = 0; row < count; row++) sizes[number_of[row]]++;
        for (int64_t rank = 0, begin = 0; rank < owners.count; rank++) {
            int64_t number = owners_find(&owners, keys[rank]);
            next[number] = begin;
            begin += sizes[number];
        }
        result = order_numbered(count, &owners, number_of, next, time, second, is_descending != 0, last, order);
    }
    owners_close(&owners);
    release(number_of);
    release(keys);
    release(next);
    release(last);
    release(sizes);
    return result;
}

/* ---- Order of rows by numbers from 0 on. ---- */

/* Order rows by number, stable.
   number: from 0 to `limit` - 1. before: number of rows with a lesser number, for each of `limit` + 1 numbers. */
API int64_t core_order_by_number(int64_t count, const int64_t *number, int64_t limit, int64_t *before, int64_t *order) {
    for (int64_t value = 0; value <= limit; value++) before[value] = 0;
    for (int64_t row = 0; row < count; row++) before[number[row]]++;
    for (int64_t value = 0, rows = 0; value <= limit; value++) {
        rows += before[value];
        before[value] = rows;
    }
    for (int64_t row = count - 1; row >= 0; row--) order[--before[number[row]]] = row;
    return 0;
}

/* ---- Parents. ---- */

/* Find the nearest row before each one, in `order`, of the same owner that ends no earlier; -1 without one.
   order: all rows. parent: by row. depth: number of such rows above each. */
API int64_t core_find_parents(
    int64_t count, const int64_t *order, const int64_t *owner, const int64_t *end, int64_t *parent, int64_t *depth
) {
    int64_t above = -1; /* of the rows before: the last one that a row may be inside, and its parents */
    for (int64_t number = 0; number < count; number++) {
        int64_t row = order[number];
        if (number && owner[order[number - 1]] != owner[row]) above = -1;
        while (above >= 0 && end[above] < end[row]) above = parent[above];
        parent[row] = above;
        depth[row] = above < 0 ? 0 : depth[above] + 1;
        above = row;
    }
    return 0;
}

/* ---- Search in ascending values, from near by. ---- */

/* Return the first position of `[from, to)` whose value is at least `wanted`, else `to`; `near` is anywhere in it. */
static int64_t search(const int64_t *values, int64_t from, int64_t to, int64_t near, int64_t wanted) {
    int64_t low = from, high = to, step = 1; /* values before `low` are less, those from `high` on are not */
    if (near < to && values[near] < wanted) {
        low = near + 1;
        while (low + step <= to && values[low + step - 1] < wanted) {
            low += step;
            step *= 2;
        }
        if (low + step - 1 < to) high = low + step - 1;
    } else {
        high = near;
        while (high - step >= from && values[high - step] >= wanted) {
            high -= step;
            step *= 2;
        }
        if (high - step >= from) low = high - step + 1;
    }
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (values[middle] < wanted) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Find the first position with a value of at least each wanted one.
   values: ascending. */
API int64_t core_search(
    int64_t count, const int64_t *values, int64_t wanted_count, const int64_t *wanted, int64_t *position
) {
    int64_t near = 0;
    for (int64_t row = 0; row < wanted_count; row++)
        position[row] = near = search(values, 0, count, near, wanted[row]);
    return 0;
}

/* ---- Nearest events of the same group. ---- */

typedef struct {
    Owners owners;
    int64_t *begin; /* of the events of each group, and the end of the last; one row for each possible group */
    int64_t *row, *time; /* of the events, by group, in order */
    int64_t *near;
} Grouped;

static void grouped_close(Grouped *of) {
    owners_close(&of->owners);
    release(of->begin);
    release(of->row);
    release(of->time);
    release(of->near);
}

/* Return 0; 1 where the groups are too many. */
static int64_t grouped_open(Grouped *of, int64_t count, const int64_t *group, const int64_t *time) {
    *of = (Grouped){0};
    uint32_t *number_of = allocate(count, sizeof(uint32_t));
    int64_t result = owners_open(&of->owners) || !number_of ? -1 : 0;
    for (int64_t row = 0; row < count && !result; row++) {
        int is_same = row && group[row] == group[row - 1];
        int64_t number = is_same ? number_of[row - 1] : owners_add(&of->owners, group[row]);
        if (number < 0) result = -1;
        else if (number >= MOST_OWNERS) result = 1;
        else number_of[row] = (uint32_t)number;
    }
    if (!result) {
        of->begin = allocate_zeros(of->owners.count + 2, sizeof(int64_t));
        of->row = allocate(count, sizeof(int64_t));
        of->time = allocate(count, sizeof(int64_t));
        of->near = allocate(of->owners.count + 1, sizeof(int64_t));
        if (!of->begin || !of->row || !of->time || !of->near) result = -1;
    }
    if (!result) {
        for (int64_t row = 0; row < count; row++) of->begin[number_of[row] + 2]++;
        for (int64_t number = 2; number <= of->owners.count; number++) of->begin[number] += of->begin[number - 1];
        for (int64_t row = 0; row < count; row++) { /* afterwards, each one is at the end of its group: the next one's begin */
            int64_t at = of->begin[number_of[row] + 1]++;
            of->row[at] = row;
            of->time[at] = time[row];
        }
        memcpy(of->near, of->begin, (size_t)of->owners.count * sizeof(int64_t));
    }
    release(number_of);
    return result;
}

/* Return the position of the first event of a group whose time is at least `time`; the end of the group without one. */
static int64_t grouped_find(Grouped *of, int64_t number, int64_t time) {
    return of->near[number] = search(of->time, of->begin[number], of->begin[number + 1], of->near[number], time);
}

/* Find the last event at or before each time, or the first one from it on; -1 without one.
   of_time: ascending within each group. is_first: the first one. is_before: events at the same time do not count.
   Return 1 where the groups are too many. */
API int64_t core_find_nearest(
    int64_t count, const int64_t *group, const int64_t *time, int64_t of_count, const int64_t *of_group,
    const int64_t *of_time, int64_t is_first, int64_t is_before, int64_t *found
) {
    Grouped of;
    int64_t result = grouped_open(&of, of_count, of_group, of_time);
    for (int64_t row = 0, number = -1; row < count && !result; row++) {
        if (row == 0 || group[row] != group[row - 1]) number = owners_find(&of.owners, group[row]);
        found[row] = -1;
        if (number < 0) continue;
        int is_last = !is_first && !is_before && time[row] == INT64_MAX;
        int64_t at = is_last ? of.begin[number + 1]
                             : grouped_find(&of, number, is_first || is_before ? time[row] : time[row] + 1);
        if (!is_first) at--;
        if (at >= of.begin[number] && at < of.begin[number + 1]) found[row] = of.row[at];
    }
    grouped_close(&of);
    return result;
}

/* Find the last event at or before each time that was launched by another time, among the last `tries`; -1 without one.
   of_time: ascending within each group. Return 1 where the groups are too many. */
API int64_t core_find_launched(
    int64_t count, const int64_t *group, const int64_t *time, const int64_t *launched_by, int64_t of_count,
    const int64_t *of_group, const int64_t *of_time, const int64_t *of_launch, int64_t tries, int64_t *found
) {
    Grouped of;
    int64_t result = grouped_open(&of, of_count, of_group, of_time);
    for (int64_t row = 0, number = -1; row < count && !result; row++) {
        if (row == 0 || group[row] != group[row - 1]) number = owners_find(&of.owners, group[row]);
        found[row] = -1;
        if (number < 0) continue;
        int64_t at = time[row] == INT64_MAX ? of.begin[number + 1] : grouped_find(&of, number, time[row] + 1);
        for (int64_t left = tries; left && --at >= of.begin[number]; left--)
            if (of_launch[of.row[at]] <= launched_by[row]) {
                found[row] = of.row[at];
                break;
            }
    }
    grouped_close(&of);
    return result;
}

/* ---- Windows of calls inside ranges. ---- */

typedef struct {
    int64_t begin, stop; /* positions of the owner's calls */
    int64_t near_start, near_end;
} OwnerCalls;

/* Find the calls of each range's owner that start and end in the range: positions `[first, last)`; 0 and 0 without calls
   of the owner. Calls are in order of (owner, start). Return 1 where those of an owner end in another order. */
API int64_t core_find_windows(
    int64_t call_count, const int64_t *call_owner, const int64_t *call_start, const int64_t *call_end,
    int64_t range_count, const int64_t *range_owner, const int64_t *range_start, const int64_t *range_end,
    int64_t *first, int64_t *last
) {
    int64_t owner_count = 0;
    for (int64_t call = 0; call < call_count; call++) {
        int is_next = call == 0 || call_owner[call] != call_owner[call - 1];
        if (!is_next && call_end[call] < call_end[call - 1]) return 1;
        owner_count += is_next;
    }
    if (owner_count > MOST_OWNERS) return 1;
    OwnerCalls *calls_of = allocate(owner_count + 1, sizeof(OwnerCalls));
    Owners owners;
    int64_t result = owners_open(&owners);
    if (!calls_of) result = -1;
    for (int64_t call = 0; call < call_count && !result; call++) {
        if (call && call_owner[call] == call_owner[call - 1]) continue;
        int64_t number = owners_add(&owners, call_owner[call]);
        if (number < 0) result = -1;
        else {
            calls_of[number] = (OwnerCalls){call, call_count, call, call};
            if (number) calls_of[number - 1].stop = call;
        }
    }
    for (int64_t range = 0, number = -1; range < range_count && !result; range++) {
        if (range == 0 || range_owner[range] != range_owner[range - 1]) number = owners_find(&owners, range_owner[range]);
        first[range] = last[range] = 0;
        if (number < 0) continue;
        OwnerCalls *calls = &calls_of[number];
        int64_t begin = calls->begin, stop = calls->stop;
        int64_t from = search(call_start, begin, stop, calls->near_start, range_start[range]);
        int64_t to = range_end[range] == INT64_MAX ? stop
                                                   : search(call_end, begin, stop, calls->near_end, range_end[range] + 1);
        calls->near_start = from;
        calls->near_end = to;
        first[range] = from;
        last[range] = to > from ? to : from;
    }
    owners_close(&owners);
    release(calls_of);
    return result;
}

/* ---- Windows of operations, by their last operation. ---- */

typedef struct {
    int32_t *head, *next; /* the first window that ends after each operation, the next one of a window; -1: none */
} Ending;

/* List the windows of the operations `[from, from + count)`; those of others are left out. */
static int ending_open(
    Ending *ending, int64_t from, int64_t count, int64_t window_count, const int64_t *first, const int64_t *last
) {
    ending->head = allocate(count + 1, sizeof(int32_t));
    ending->next = allocate(window_count + 1, sizeof(int32_t));
    if (!ending->head || !ending->next) return -1;
    for (int64_t op = 0; op <= count; op++) ending->head[op] = -1;
    for (int64_t window = window_count - 1; window >= 0; window--) {
        if (first[window] < from || last[window] > from + count) continue;
        ending->next[window] = ending->head[last[window] - from];
        ending->head[last[window] - from] = (int32_t)window;
    }
    return 0;
}

static void ending_close(Ending *ending) {
    release(ending->head);
    release(ending->next);
}

/* Return the least row of a stack, whose rows ascend, that is at least `from`; the last row is. */
static int64_t stack_find(const int32_t *stack, int64_t depth, int64_t from) {
    int64_t low = 0, high = depth - 1, step = 1; /* the one at `high` is at least `from` */
    while (high - step >= 0 && stack[high - step] >= from) {
        high -= step;
        step *= 2;
    }
    if (high - step >= 0) low = high - step + 1;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (stack[middle] < from) low = middle + 1;
        else high = middle;
    }
    return stack[high];
}

/* Find the operation of each window that starts first, and the one that ends last; the first of equal ones.
   first, last: operations `[first, last)` of each window, at least one. */
API int64_t core_find_extremes(
    int64_t count, const int64_t *start, const int64_t *end, int64_t window_count, const int64_t *first,
    const int64_t *last, int64_t *first_op, int64_t *last_op
) {
    int32_t *starts = allocate(count, sizeof(int32_t)); /* operations that start before all later ones */
    int32_t *ends = allocate(count, sizeof(int32_t));   /* those that end after all later ones */
    int64_t start_depth = 0, end_depth = 0, result = -1;
    Ending ending = {0};
    if (starts && ends && !ending_open(&ending, 0, count, window_count, first, last)) {
        result = 0;
        for (int64_t op = 0; op < count; op++) {
            while (start_depth && start[starts[start_depth - 1]] > start[op]) start_depth--;
            while (end_depth && end[ends[end_depth - 1]] < end[op]) end_depth--;
            starts[start_depth++] = (int32_t)op;
            ends[end_depth++] = (int32_t)op;
            for (int32_t window = ending.head[op + 1]; window >= 0; window = ending.next[window]) {
                first_op[window] = stack_find(starts, start_depth, first[window]);
                last_op[window] = stack_find(ends, end_depth, first[window]);
            }
        }
    }
    ending_close(&ending);
    release(starts);
    release(ends);
    return result;
}

/* ---- Rows by time: a radix sort. ---- */

#define DIGIT_BITS 11
#define DIGITS (1 << DIGIT_BITS)

/* Sort rows by time, stable.
   keys, rows: room for twice as many. */
static void sort_rows(int64_t count, const int64_t *time, uint32_t *order, uint64_t *keys, uint32_t *rows) {
    int64_t least = INT64_MAX, most = INT64_MIN;
    int is_sorted = 1;
    for (int64_t row = 0; row < count; row++) {
        if (time[row] < least) least = time[row];
        if (time[row] > most) most = time[row];
        is_sorted &= row == 0 || time[row - 1] <= time[row];
        order[row] = (uint32_t)row;
    }
    if (is_sorted) return;
    uint64_t span = (uint64_t)most - (uint64_t)least, *moved_keys = keys + count;
    uint32_t *moved_rows = rows + count;
    for (int64_t row = 0; row < count; row++) {
        keys[row] = (uint64_t)time[row] - (uint64_t)least;
        rows[row] = (uint32_t)row;
    }
    for (int shift = 0; shift < 64 && span >> shift; shift += DIGIT_BITS) {
        int64_t next[DIGITS] = {0}, begin = 0;
        for (int64_t row = 0; row < count; row++) next[(keys[row] >> shift) & (DIGITS - 1)]++;
        for (int digit = 0; digit < DIGITS; digit++) {
            int64_t size = next[digit];
            next[digit] = begin;
            begin += size;
        }
        for (int64_t row = 0; row < count; row++) {
            int64_t at = next[(keys[row] >> shift) & (DIGITS - 1)]++;
            moved_keys[at] = keys[row];
            moved_rows[at] = rows[row];
        }
        uint64_t *free_keys = keys;
        uint32_t *free_rows = rows;
        keys = moved_keys;
        rows = moved_rows;
        moved_keys = free_keys;
        moved_rows = free_rows;
    }
    memcpy(order, rows, (size_t)count * sizeof(uint32_t));
}

/* Sort rows by time, from an order that is nearly sorted: by insertion, as long as rows move by a few places each, else
   like `sort_rows`. */
static void sort_nearly_sorted(int64_t count, const int64_t *time, uint32_t *order, uint64_t *keys, uint32_t *rows) {
    int64_t moves = 8 * count;
    for (int64_t number = 1; number < count; number++) {
        uint32_t row = order[number];
        int64_t at = number;
        for (; at > 0 && time[order[at - 1]] > time[row]; at--) order[at] = order[at - 1];
        order[at] = row;
        moves -= number - at;
        if (moves < 0) {
            sort_rows(count, time, order, keys, rows);
            return;
        }
    }
}

/* ---- A set of slots, with the nearest member before and after a slot: words of 64 bits, whose words in use are a set
   of the same kind. ---- */

#define MOST_LEVELS 6 /* 64 to the sixth is more than all slots of 32 bits */

typedef struct {
    uint64_t *level[MOST_LEVELS];
    int levels;
} Slots;

static int slots_open(Slots *slots, int64_t count) {
    *slots = (Slots){0};
    do {
        count = (count + 63) / 64;
        slots->level[slots->levels] = allocate_zeros(count, sizeof(uint64_t));
        if (!slots->level[slots->levels++]) return -1;
    } while (count > 1);
    return 0;
}

static void slots_close(Slots *slots) {
    for (int level = 0; level < slots->levels; level++) release(slots->level[level]);
}

static int slots_has(const Slots *slots, int64_t slot) { return slots->level[0][slot >> 6] >> (slot & 63) & 1; }

static void slots_add(Slots *slots, int64_t slot) {
    for (int level = 0; level < slots->levels; level++, slot >>= 6) {
        uint64_t word = slots->level[level][slot >> 6];
        slots->level[level][slot >> 6] = word | (uint64_t)1 << (slot & 63);
        if (word) return;
    }
}

static void slots_remove(Slots *slots, int64_t slot) {
    for (int level = 0; level < slots->levels; level++, slot >>= 6)
        if (slots->level[level][slot >> 6] &= ~((uint64_t)1 << (slot & 63))) return;
}

/* Return the last member before a slot; there is one. */
static int64_t slots_before(const Slots *slots, int64_t slot) {
    int level = 0;
    uint64_t word;
    while (!(word = slots->level[level][slot >> 6] & (((uint64_t)1 << (slot & 63)) - 1))) {
        slot >>= 6;
        level++;
    }
    slot = (slot & ~(int64_t)63) | (63 - __builtin_clzll(word));
    while (level--) slot = slot << 6 | (63 - __builtin_clzll(slots->level[level][slot]));
    return slot;
}

/* Return the first member after a slot; there is one. */
static int64_t slots_after(const Slots *slots, int64_t slot) {
    int level = 0;
    uint64_t word;
    while (!(word = slots->level[level][slot >> 6] & (~(uint64_t)1 << (slot & 63)))) {
        slot >>= 6;
        level++;
    }
    slot = (slot & ~(int64_t)63) | __builtin_ctzll(word);
    while (level--) slot = slot << 6 | __builtin_ctzll(slots->level[level][slot]);
    return slot;
}

/* ---- Sums of values from a position on: of 1, 64, 64 * 64, ... values. ---- */

typedef struct {
    int64_t *level[MOST_LEVELS];
    int levels;
} Sums;

static int sums_open(Sums *sums, int64_t count) {
    *sums = (Sums){0};
    for (;; count = (count + 63) / 64) {
        sums->level[sums->levels] = allocate_zeros(count, sizeof(int64_t));
        if (!sums->level[sums->levels++]) return -1;
        if (count <= 64) return 0;
    }
}

static void sums_close(Sums *sums) {
    for (int level = 0; level < sums->levels; level++) release(sums->level[level]);
}

static void sums_add(Sums *sums, int64_t at, int64_t value) {
    for (int level = 0; level < sums->levels; level++, at >>= 6) sums->level[level][at] += value;
}

/* Sum the values at `[from, to)`; all values from `to` on are 0. */
static int64_t sums_from(const Sums *sums, int64_t from, int64_t to) {
    int64_t sum = 0;
    for (int level = 0; level < sums->levels && from < to; level++) {
        int64_t stop = (from | 63) + 1;
        if (stop > to || level == sums->levels - 1) stop = to;
        for (int64_t at = from; at < stop; at++) sum += sums->level[level][at];
        from = (from >> 6) + 1;
        to = ((to - 1) >> 6) + 1;
    }
    return sum;
}

/* ---- Unions of operations. ----

   The time between two neighbouring starts or ends of operations is a slot. Operations are taken in order. Each
   slot belongs to the last operation so far that covers it; slots of one operation side by side are a piece. An
   operation takes the slots that it covers, which ends pieces and begins three at most: in total, the work is that of a few
   pieces for each operation. The union of operations `[first, last)` is, after operation last - 1, the time that
   belongs to operations from `first` on: no later one has taken any yet. */

typedef struct {
    uint32_t *start_slot, *end_slot; /* of each operation */
    int64_t *time;                   /* at which each slot begins; first, room to sort */
    int32_t *taker;                  /* by first slot of a piece: its operation, or -1; first, room to sort */
    int64_t slot_count;
    Slots pieces; /* their first slots */
    Sums covered; /* time that belongs to each operation */
} Cover;

/* Number the slots. */
static int cover_number(Cover *cover, int64_t count, const int64_t *start, const int64_t *end) {
    uint32_t *starts = allocate(count, sizeof(uint32_t)), *ends = allocate(count, sizeof(uint32_t));
    int result = starts && ends ? 0 : -1;
    if (!result) {
        sort_rows(count, start, starts, (uint64_t *)cover->time, (uint32_t *)cover->taker);
        memcpy(ends, starts, (size_t)count * sizeof(uint32_t));
        sort_nearly_sorted(count, end, ends, (uint64_t *)cover->time, (uint32_t *)cover->taker);
    }
    int64_t slot = -1;
    for (int64_t from = 0, to = 0; !result && to < count;) {
        int is_start = from < count && start[starts[from]] <= end[ends[to]];
        uint32_t op = is_start ? starts[from++] : ends[to++];
        int64_t time = is_start ? start[op] : end[op];
        if (slot < 0 || cover->time[slot] != time) cover->time[++slot] = time;
        (is_start ? cover->start_slot : cover->end_slot)[op] = (uint32_t)slot;
    }
    cover->slot_count = slot + 1;
    release(starts);
    release(ends);
    return result;
}

static int cover_open(Cover *cover, int64_t count, const int64_t *start, const int64_t *end) {
    cover->start_slot = allocate(count, sizeof(uint32_t));
    cover->end_slot = allocate(count, sizeof(uint32_t));
    cover->time = allocate(2 * count, sizeof(int64_t));
    cover->taker = allocate(2 * count, sizeof(int32_t));
    if (!cover->start_slot || !cover->end_slot || !cover->time || !cover->taker) return -1;
    if (cover_number(cover, count, start, end)) return -1;
    if (slots_open(&cover->pieces, cover->slot_count) || sums_open(&cover->covered, count)) return -1;
    slots_add(&cover->pieces, 0);
    slots_add(&cover->pieces, cover->slot_count - 1);
    cover->taker[0] = cover->taker[cover->slot_count - 1] = -1;
    return 0;
}

static void cover_close(Cover *cover) {
    release(cover->start_slot);
    release(cover->end_slot);
    release(cover->time);
    release(cover->taker);
    slots_close(&cover->pieces);
    sums_close(&cover->covered);
}

/* Cut the piece around a slot before the slot. */
static void cover_cut(Cover *cover, int64_t slot) {
    if (slots_has(&cover->pieces, slot)) return;
    cover->taker[slot] = cover->taker[slots_before(&cover->pieces, slot)];
    slots_add(&cover->pieces, slot);
}

/* Assign the slots of an operation to it. */
static void cover_take(Cover *cover, int64_t op) {
    int64_t first = cover->start_slot[op], last = cover->end_slot[op];
    if (first >= last) return;
    cover_cut(cover, first);
    cover_cut(cover, last);
    for (int64_t piece = first, next; piece < last; piece = next) {
        next = slots_after(&cover->pieces, piece);
        if (cover->taker[piece] >= 0)
            sums_add(&cover->covered, cover->taker[piece], cover->time[piece] - cover->time[next]);
        if (piece > first) slots_remove(&cover->pieces, piece);
    }
    cover->taker[first] = (int32_t)op;
    sums_add(&cover->covered, op, cover->time[last] - cover->time[first]);
}

/* Measure the union of the operations of each window of some operations; those of others are left out.
   end: not before start; both span less than half of all numbers. from: number of the first of these operations.
   first, last: as for `core_find_extremes`, by numbers among all operations. */
API int64_t core_measure_unions(
    int64_t count, const int64_t *start, const int64_t *end, int64_t from, int64_t window_count,
    const int64_t *first, const int64_t *last, int64_t *length
) {
    if (!count) return 0;
    Cover cover = {0};
    Ending ending = {0};
    int64_t result = -1;
    if (!cover_open(&cover, count, start, end) &&
        !ending_open(&ending, from, count, window_count, first, last)) {
        result = 0;
        for (int64_t op = 0; op < count; op++) {
            cover_take(&cover, op);
            for (int32_t window = ending.head[op + 1]; window >= 0; window = ending.next[window])
                length[window] = sums_from(&cover.covered, first[window] - from, op + 1);
        }
    }
    cover_close(&cover);
    ending_close(&ending);
    return result;
}

/* ---- Values by rank. ---- */

/* Return a number with the order of a double. */
static int64_t to_ordered(double value) {
    int64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits ^ (int64_t)((uint64_t)(bits >> 63) >> 1);
}

static int compare_doubles(const void *a, const void *b) {
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

/* Return the value at a position in ascending order, and leave those before it before it. */
static double select_value(double *values, int64_t count, int64_t position) {
    int64_t first = 0, last = count - 1, tries = 64;
    while (first < last) {
        if (tries-- == 0) { /* values in an order that is made for it */
            qsort(values + first, (size_t)(last - first + 1), sizeof(double), compare_doubles);
            break;
        }
        double low = values[first], middle = values[first + (last - first) / 2], high = values[last];
        double pivot = low < middle ? (middle < high ? middle : low < high ? high : low)
                                    : (low < high ? low : middle < high ? high : middle);
        int64_t left = first, right = last;
        while (left <= right) {
            while (values[left] < pivot) left++;
            while (values[right] > pivot) right--;
            if (left <= right) {
                double value = values[left];
                values[left++] = values[right];
                values[right--] = value;
            }
        }
        if (position <= right) last = right;
        else if (position >= left) first = left;
        else break;
    }
    return values[position];
}

/* ---- Sums in the order of numpy, so that results are equal to the last bit. ---- */

#define SUM_BLOCK 128

/* Sum values by halves, as numpy does. */
static double sum_by_halves(const double *values, int64_t count) {
    if (count < 8) {
        double sum = 0.0;
        for (int64_t row = 0; row < count; row++) sum += values[row];
        return sum;
    }
    if (count > SUM_BLOCK) {
        int64_t half = count / 2;
        half -= half % 8;
        return sum_by_halves(values, half) + sum_by_halves(values + half, count - half);
    }
    double sums[8];
    int64_t row = 8, stop = count - count % 8;
    for (int at = 0; at < 8; at++) sums[at] = values[at];
    for (; row < stop; row += 8)
        for (int at = 0; at < 8; at++) sums[at] += values[row + at];
    double sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    for (; row < count; row++) sum += values[row];
    return sum;
}

/* ---- Points near each other: of pairs of channels, each is the nearest of the other. ---- */

typedef struct {
    double time;     /* beyond the times of the keys before: ascends */
    double own_time; /* the same without what is added */
    int32_t channel, row;
} Other;

/* Sides of points: those that are no message of one direction, sends and receives. */
enum { ANY, SENDS, RECEIVES, SIDES };

/* Points of one side, and the others that they may be near, in order; one more is at no time. */
typedef struct {
    int64_t first, stop, count; /* of `comparable`; of the others */
    Other *others;
} Side;

/* A point with others of its key, in order of sides, keys and times: neighbours are near neighbours of the others. */
typedef struct {
    double end, base; /* base: added to predicted times before they are compared with those of the others */
    int32_t point, side;
} Comparable;

typedef struct {
    /* Given: points, with any key and channel; and others, by key and time. */
    int64_t count;
    const int64_t *key, *given_channel, *given_kind;
    const double *end;
    int64_t other_count;
    const int64_t *other_key, *given_other_channel, *given_other_kind;
    const double *other_time;
    /* Kinds: messages are those from `send` to `exchange`; a send is near no send, and a receive near no receive. */
    int64_t send, receive, exchange;
    double beyond, together; /* times that far beyond those of the others are compared as if they were nearer; points this close
                                in time are at one time */
    /* What is prepared: channels are numbered from 0, in order. */
    int64_t *channel;
    double *share; /* 1 by the number of points of this key at this time */
    uint8_t *is_message, *is_exchange; /* of each channel; room for the points */
    int64_t *own_total, *other_total;  /* points and others of each channel; room for the points and the others */
    int32_t *by_channel;               /* points by channel */
    int64_t *channel_bounds;           /* the first of each channel, and the end; room for the points and two */
    int64_t *sections;                 /* the first of the others of each key, and the end; room for the others and one */
    Comparable *comparable;
    Other *others; /* all, then those of sides; room for all of each side and one */
    int64_t comparable_count, channel_count, other_channel_count, section_count;
    double first, last; /* of the others */
    Side sides[SIDES];
} Points;

typedef struct {
    int32_t mark, pair; /* the pair of the nearest point of a channel; `mark` tells the channel */
} Owner;

typedef struct {
    int32_t row, channel; /* of the others */
    double residual;      /* time of the other minus predicted time of the point */
} Nearest;

/* Sums of the pairs of two channels. */
typedef struct {
    double squares, shares;
    int64_t count;
} LinkSums;

/* A search, with room of its own. */
typedef struct {
    /* The prediction, end + offset + rate * (end - center); the largest distance of a pair; what is added to the time that
       both have, for counts. */
    double offset, rate, center, tolerance, margin;
    /* What is found, with room for `capacity` pairs and as many pairs of channels: pairs by channel of the point, then point and
       other; `first_pair` and `pairs_of` of each point are its first pair and their number. */
    int64_t capacity, pairs, links;
    double *predicted; /* times of all points */
    int32_t *first_pair, *pairs_of, *point, *other, *link;
    Nearest *nearest;
    double *residual;
    int64_t *numbers, *pair_count; /* of pairs of channels: channel times the number of channels of the others, and other channel */
    double *squares, *shares;
    int64_t *own_within, *others_within; /* points and others of each channel in the time that both have */
    double within_ns;                    /* this time */
    /* Room: a number for each channel of the others, and of each of the others. Marks grow from one search to the next. */
    int32_t *best, *stamp, *touched;
    Owner *owners;
    LinkSums *sums;
    int64_t last_mark;
} Search;

/* Return the first row from which times are at least `time`; `row` is a guess. */
static int64_t find_time(const double *times, int64_t count, double time, int64_t row) {
    int64_t low = 0, high = count, step = 1;
    if (row < count && times[row] < time) {
        for (low = row + 1; row + step < count && times[row + step] < time; step *= 2) low = row + step + 1;
        if (row + step < count) high = row + step;
    } else if (row > 0) {
        for (high = row; row - step >= 0 && times[row - step] >= time; step *= 2) high = row - step;
        if (row - step >= 0) low = row - step + 1;
    }
    while (low < high) {
        int64_t half = low + (high - low) / 2;
        if (times[half] < time) low = half + 1;
        else high = half;
    }
    return low;
}

static double distance(double a, double b) { return a < b ? b - a : a - b; }

static double within(double value, double least, double most) {
    return value < least ? least : value > most ? most : value;
}

/* Number values in order: `numbers` receives those of each, and the result is how many there are; -1 where memory is short. */
static int64_t number_values(int64_t count, const int64_t *values, int64_t *numbers) {
    int64_t least = INT64_MAX, most = INT64_MIN, used = 0;
    for (int64_t row = 0; row < count; row++) {
        if (values[row] < least) least = values[row];
        if (values[row] > most) most = values[row];
    }
    if (!count) return 0;
    int64_t *table = allocate_zeros(most - least + 1, sizeof(int64_t));
    if (!table) return -1;
    for (int64_t row = 0; row < count; row++) table[values[row] - least] = 1;
    for (int64_t value = 0; value <= most - least; value++)
        if (table[value]) table[value] = used++;
    for (int64_t row = 0; row < count; row++) numbers[row] = table[values[row] - least];
    release(table);
    return used;
}

/* Find the sections of the others, and copy these; return 1 where they are not in order of key and time. */
static int prepare_others(Points *of, const int64_t *channel) {
    const double *time = of->other_time;
    int64_t sections = 0;
    of->first = of->last = of->other_count ? time[0] : 0.0;
    for (int64_t row = 0; row < of->other_count; row++) {
        if (!row || of->other_key[row] != of->other_key[row - 1]) of->sections[sections++] = row;
        if (time[row] < of->first) of->first = time[row];
        if (time[row] > of->last) of->last = time[row];
        if (row && of->other_key[row] < of->other_key[row - 1]) return 1;
    }
    of->sections[sections] = of->other_count;
    of->section_count = sections;
    double stride = of->last - of->first + 4 * of->beyond;
    for (int64_t section = 0; section < sections; section++)
        for (int64_t row = of->sections[section]; row < of->sections[section + 1]; row++) {
            Other *other = of->others + row;
            other->time = time[row] - of->first + (double)section * stride;
            other->own_time = time[row];
            other->channel = (int32_t)channel[row];
            other->row = (int32_t)row;
            of->other_total[channel[row]]++;
            if (row && !(other->time >= other[-1].time)) return 1;
        }
    return 0;
}

/* List the others of each side: a send is near no send, and a receive near no receive. */
static void split_others(Points *of) {
    Other *to = of->others + of->other_count;
    *to++ = (Other){NAN, NAN, 0, 0};
    for (int side = ANY; side < SIDES; side++) {
        int64_t left_out = side == SENDS ? of->send : of->receive, count = 0;
        if (side != ANY && of->sides[side].first < of->sides[side].stop) {
            for (int64_t row = 0; row < of->other_count; row++) {
                to[count] = of->others[row];
                count += of->given_other_kind[row] != left_out;
            }
            to[count] = (Other){NAN, NAN, 0, 0};
            of->sides[side].others = to;
            to += count + 1;
        } else {
            of->sides[side].others = of->others;
            count = of->other_count;
        }
        of->sides[side].count = count;
    }
}

/* Describe the channels of the points, and order the points by them. */
static void prepare_channels(Points *of) {
    int64_t *bounds = of->channel_bounds;
    for (int64_t point = 0; point < of->count; point++) {
        int64_t channel = of->channel[point], kind = of->given_kind[point];
        of->own_total[channel]++;
        if (kind >= of->send && kind <= of->exchange) of->is_message[channel] = 1;
        if (kind == of->exchange) of->is_exchange[channel] = 1;
    }
    bounds[0] = bounds[1] = 0;
    for (int64_t channel = 0; channel < of->channel_count; channel++)
        bounds[channel + 2] = bounds[channel + 1] + of->own_total[channel];
    for (int64_t point = 0; point < of->count; point++) of->by_channel[bounds[of->channel[point] + 1]++] = (int32_t)point;
}

/* Order rows by value; `words` is room for three times as many, `rows` for twice. */
static void order_values(int64_t count, const double *values, uint32_t *order, int64_t *words, uint32_t *rows) {
    for (int64_t row = 0; row < count; row++) words[row] = to_ordered(values[row]);
    sort_rows(count, words, order, (uint64_t *)(words + count), rows);
}

/* Count the points of each key at the time of each point; `keys` are numbered, `times` is room for them. */
static void share_points(Points *of, const int64_t *keys, double *times, uint32_t *order, int64_t *words, uint32_t *rows) {
    int64_t count = of->count, low = 0, high = 0;
    double least = count ? of->end[0] : 0.0, most = least;
    for (int64_t point = 1; point < count; point++) {
        if (of->end[point] < least) least = of->end[point];
        if (of->end[point] > most) most = of->end[point];
    }
    double apart = 2 * of->together + (most - least), from = least < 0 ? least : 0.0;
    for (int64_t point = 0; point < count; point++) times[point] = of->end[point] - from + (double)keys[point] * apart;
    order_values(count, times, order, words, rows);
    for (int64_t at = 0; at < count; at++) {
        double time = times[order[at]];
        while (times[order[low]] < time - of->together) low++;
        while (high < count && times[order[high]] <= time + of->together) high++;
        of->share[order[at]] = 1 / (double)(high - low);
    }
}

/* List the points that have others of their key, in order. `times` is room for them. */
static void list_comparable(Points *of, double *times, uint32_t *order, int64_t *words, uint32_t *rows) {
    double stride = of->last - of->first + 4 * of->beyond;
    int64_t listed = 0, section = 0, counts[SIDES] = {0};
    for (int64_t point = 0; point < of->count; point++) {
        int64_t key = of->key[point], low = 0, high = of->section_count, kind = of->given_kind[point];
        if (section < high && of->other_key[of->sections[section]] == key) low = high = section;
        while (low < high) {
            int64_t half = low + (high - low) / 2;
            if (of->other_key[of->sections[half]] < key) low = half + 1;
            else high = half;
        }
        if (low >= of->section_count || of->other_key[of->sections[low]] != key) continue;
        section = low;
        double base = (double)section * stride - of->first;
        int side = kind == of->send ? SENDS : kind == of->receive ? RECEIVES : ANY;
        Comparable *own = of->comparable + of->count + listed; /* in the second half, until they are ordered */
        *own = (Comparable){of->end[point], base, (int32_t)point, side};
        times[listed++] = of->end[point] + base;
        counts[side]++;
    }
    of->comparable_count = listed;
    order_values(listed, times, order, words, rows);
    int64_t next[SIDES] = {0, counts[ANY], counts[ANY] + counts[SENDS]};
    for (int side = ANY; side < SIDES; side++) {
        of->sides[side].first = next[side];
        of->sides[side].stop = next[side] + counts[side];
    }
    for (int64_t at = 0; at < listed; at++) {
        const Comparable *own = of->comparable + of->count + order[at];
        of->comparable[next[own->side]++] = *own;
    }
}

/* Prepare the points and others for searches. Return 1 where the others are not in order of key and time, -1 where memory is
   short. */
API int64_t core_prepare_points(Points *of) {
    int64_t count = of->count, most = count > of->other_count ? count : of->other_count, result = -1;
    int64_t *words = allocate(4 * most, sizeof(int64_t)); /* numbers, and room to order rows */
    uint32_t *rows = allocate(3 * most, sizeof(uint32_t));
    double *times = allocate(count, sizeof(double));
    if (words && rows && times) result = 0;
    int64_t *numbers = words, *room = words + most;
    uint32_t *order = rows + 2 * most;
    if (!result && (of->other_channel_count = number_values(of->other_count, of->given_other_channel, numbers)) < 0) result = -1;
    if (!result) {
        memset(of->other_total, 0, (size_t)of->other_channel_count * sizeof(int64_t));
        result = prepare_others(of, numbers);
    }
    if (!result && (of->channel_count = number_values(count, of->given_channel, of->channel)) < 0) result = -1;
    if (!result && number_values(count, of->key, numbers) < 0) result = -1;
    if (!result) {
        memset(of->own_total, 0, (size_t)of->channel_count * sizeof(int64_t));
        memset(of->is_message, 0, (size_t)of->channel_count);
        memset(of->is_exchange, 0, (size_t)of->channel_count);
        prepare_channels(of);
        share_points(of, numbers, times, order, room, rows);
        list_comparable(of, times, order, room, rows);
        split_others(of);
    }
    release(words);
    release(rows);
    release(times);
    return result;
}

/* Count the others of each channel from `since` to `until`: those within, or those beyond, whichever are fewer. */
static void count_others(const Points *of, Search *to, double since, double until) {
    const Other *others = of->others;
    const double *time = of->other_time;
    int64_t *counts = to->others_within, inside = 0;
    for (int pass = 0; pass < 2; pass++) {
        int64_t sign = 1;
        if (pass) {
            size_t size = (size_t)of->other_channel_count * sizeof(int64_t);
            if (2 * inside < of->other_count) memset(counts, 0, size);
            else {
                memcpy(counts, of->other_total, size);
                sign = -1;
            }
        }
        for (int64_t number = 0; number < of->section_count; number++) {
            int64_t first = of->sections[number], stop = of->sections[number + 1];
            int64_t low = first + find_time(time + first, stop - first, since, 0), high = low;
            if (low < stop) high = low + find_time(time + low, stop - low, until, stop - low - 1);
            while (high < stop && time[high] <= until) high++;
            if (!pass) inside += high - low;
            else if (sign > 0)
                for (int64_t row = low; row < high; row++) counts[others[row].channel]++;
            else {
                for (int64_t row = first; row < low; row++) counts[others[row].channel]--;
                for (int64_t row = high; row < stop; row++) counts[others[row].channel]--;
            }
        }
    }
}

/* Predict the time of each point, and count those of each channel in the time that both have. */
static void predict(const Points *of, Search *to) {
    const double *end = of->end, offset = to->offset, rate = to->rate, center = to->center;
    double *predicted = to->predicted, first = of->last, last = of->first;
    for (int64_t point = 0; point < of->count; point++)
        predicted[point] = end[point] + (offset + rate * (end[point] - center));
    if (of->count) first = last = predicted[0];
    for (int64_t point = 1; point < of->count; point++) {
        first = predicted[point] < first ? predicted[point] : first;
        last = predicted[point] > last ? predicted[point] : last;
    }
    double since = (first > of->first ? first : of->first) - to->margin;
    double until = (last < of->last ? last : of->last) + to->margin;
    memcpy(to->own_within, of->own_total, (size_t)of->channel_count * sizeof(int64_t));
    for (int64_t point = 0; point < of->count; point++)
        if (!(predicted[point] >= since && predicted[point] <= until)) to->own_within[of->channel[point]]--;
    count_others(of, to, since, until);
    to->within_ns = until - since;
}

/* Return the first of the others from which times are at least `time`; `row` is a guess that is mostly a few rows before. */
static int64_t find_other(const Other *others, int64_t count, double time, int64_t row) {
    int64_t low = 0, high = count, step = 1, near = row + 8;
    if (others[row].time < time) {
        do row++;
        while (row < near && others[row].time < time);
        if (!(others[row].time < time)) return row;
        for (low = row + 1; row + step < high && others[row + step].time < time; step *= 2) low = row + step + 1;
        if (row + step < high) high = row + step;
    } else if (row > 0) {
        for (high = row; row - step >= 0 && others[row - step].time >= time; step *= 2) high = row - step;
        if (row - step >= 0) low = row - step + 1;
    }
    while (low < high) {
        int64_t half = low + (high - low) / 2;
        if (others[half].time < time) low = half + 1;
        else high = half;
    }
    return low;
}

/* Return marks for as many as `count`, larger than all before; where they are used up, all are set to 0. */
static int32_t take_marks(const Points *of, Search *to, int64_t count) {
    if (to->last_mark > INT32_MAX - count - 1) {
        memset(to->stamp, 0, (size_t)of->other_channel_count * sizeof(int32_t));
        memset(to->owners, 0, (size_t)of->other_count * sizeof(Owner));
        to->last_mark = 0;
    }
    int64_t first = to->last_mark + 1;
    to->last_mark += count;
    return (int32_t)first;
}

/* List the nearest of the others in each of their channels, of each point of a side, by rows, in `nearest`; return the number of
   pairs with those before, which may be above the capacity. */
static int64_t list_nearest(const Points *of, Search *to, const Side *side, int64_t pairs) {
    const Other *others = side->others;
    int64_t capacity = to->capacity, low = 0;
    int32_t *stamp = to->stamp, *best = to->best, *seen = to->touched;
    Nearest *nearest = to->nearest;
    double least = of->first - of->beyond, most = of->last + of->beyond, tolerance = to->tolerance;
    double offset = to->offset, rate = to->rate, center = to->center;
    int32_t mark = take_marks(of, to, side->stop - side->first);
    for (int64_t number = side->first; number < side->stop; number++, mark++) {
        const Comparable *own = of->comparable + number;
        double time = own->end + (offset + rate * (own->end - center));
        double high = within(time + tolerance, least, most) + own->base;
        low = find_other(others, side->count, within(time - tolerance, least, most) + own->base, low);
        if (!(others[low].time <= high)) continue;
        int64_t touched = 0, first = pairs;
        if (!(others[low + 1].time <= high)) { /* one, as mostly */
            if (pairs++ >= capacity) continue;
            to->first_pair[own->point] = (int32_t)first;
            to->pairs_of[own->point] = 1;
            nearest[first] = (Nearest){others[low].row, others[low].channel, others[low].own_time - time};
            continue;
        }
        for (int64_t row = low; others[row].time <= high; row++) {
            int32_t channel = others[row].channel;
            if (stamp[channel] != mark) {
                stamp[channel] = mark;
                best[channel] = (int32_t)row;
                seen[touched++] = channel;
            } else if (distance(others[row].own_time, time) < distance(others[best[channel]].own_time, time))
                best[channel] = (int32_t)row;
        }
        if (pairs + touched > capacity) {
            pairs += touched;
            continue;
        }
        to->first_pair[own->point] = (int32_t)first;
        to->pairs_of[own->point] = (int32_t)touched;
        for (int64_t number_seen = 0; number_seen < touched; number_seen++) {
            const Other *chosen = others + best[seen[number_seen]];
            int64_t at = pairs++;
            for (; at > first && nearest[at - 1].row > chosen->row; at--) nearest[at] = nearest[at - 1];
            nearest[at] = (Nearest){chosen->row, chosen->channel, chosen->own_time - time};
        }
    }
    return pairs;
}

static int compare_numbers(const void *a, const void *b) {
    int32_t first = *(const int32_t *)a, second = *(const int32_t *)b;
    return (first > second) - (first < second);
}

/* Sort the channels of the others that `stamp` marks. */
static void sort_touched(const Points *of, Search *to, int64_t touched, int32_t mark) {
    if (touched * 8 < of->other_channel_count) {
        qsort(to->touched, (size_t)touched, sizeof(int32_t), compare_numbers);
        return;
    }
    int64_t at = 0;
    for (int32_t channel = 0; at < touched; channel++)
        if (to->stamp[channel] == mark) to->touched[at++] = channel;
}

/* Copy the pairs of a channel from `nearest`, from `first` on, sum them by channel of the others, and find the nearest of its points to
   each of the others; return the end, which is negative where several points have one of them. `touched` receives the channels of the
   others, `stamp` marks them, and `link` has that of each pair. */
static int64_t own_others(const Points *of, Search *to, int64_t channel, int64_t first, int32_t mark, int64_t *touched) {
    int32_t *points = to->point, *others = to->other, *links = to->link, *stamp = to->stamp;
    double *residuals = to->residual;
    Owner *owners = to->owners;
    LinkSums *sums = to->sums;
    int64_t pairs = first, is_shared = 0;
    *touched = 0;
    for (int64_t at = of->channel_bounds[channel]; at < of->channel_bounds[channel + 1]; at++) {
        int32_t point = of->by_channel[at], count = to->pairs_of[point];
        if (!count) continue;
        const Nearest *nearest = to->nearest + to->first_pair[point];
        double share = of->share[point];
        to->first_pair[point] = (int32_t)pairs;
        for (const Nearest *stop = nearest + count; nearest < stop; nearest++, pairs++) {
            double residual = nearest->residual;
            Owner *owner = owners + nearest->row;
            LinkSums *sum = sums + nearest->channel;
            if (owner->mark != mark) *owner = (Owner){mark, (int32_t)pairs};
            else {
                is_shared = 1;
                if (fabs(residual) < fabs(residuals[owner->pair])) owner->pair = (int32_t)pairs;
            }
            points[pairs] = point;
            others[pairs] = nearest->row;
            links[pairs] = nearest->channel;
            residuals[pairs] = residual;
            if (stamp[nearest->channel] != mark) {
                stamp[nearest->channel] = mark;
                to->touched[(*touched)++] = nearest->channel;
                *sum = (LinkSums){0.0, 0.0, 0};
            }
            sum->count++;
            sum->squares += residual * residual;
            sum->shares += share;
        }
    }
    return is_shared ? -pairs : pairs;
}

/* Keep the pairs from `first` to `stop` whose point is the nearest of its channel to the other, and sum them again; return the end. */
static int64_t drop_shared(const Points *of, Search *to, int64_t first, int64_t stop) {
    int64_t kept = first;
    int32_t last = -1;
    for (int64_t row = first; row < stop; row++) {
        int32_t point = to->point[row], other = to->other[row], link = to->link[row];
        double residual = to->residual[row];
        if (point != last) to->first_pair[point] = (int32_t)kept;
        last = point;
        if (to->owners[other].pair != row) {
            to->pairs_of[point]--;
            continue;
        }
        to->point[kept] = point;
        to->other[kept] = other;
        to->residual[kept] = residual;
        to->link[kept++] = link;
        to->pair_count[link]++;
        to->squares[link] += residual * residual;
        to->shares[link] += of->share[point];
    }
    return kept;
}

/* Keep the pairs whose point is the nearest of its channel to the other, with sums by pair of channels. */
static void keep_mutual(const Points *of, Search *to) {
    int64_t kept = 0, links = 0;
    int32_t mark = take_marks(of, to, of->channel_count);
    for (int64_t channel = 0; channel < of->channel_count; channel++, mark++) {
        int64_t touched, found = own_others(of, to, channel, kept, mark, &touched), stop = found < 0 ? -found : found;
        sort_touched(of, to, touched, mark);
        for (int64_t number = 0; number < touched; number++, links++) {
            const LinkSums *sum = to->sums + to->touched[number];
            to->best[to->touched[number]] = (int32_t)links;
            to->numbers[links] = channel * of->other_channel_count + to->touched[number];
            to->pair_count[links] = found < 0 ? 0 : sum->count;
            to->squares[links] = found < 0 ? 0.0 : sum->squares;
            to->shares[links] = found < 0 ? 0.0 : sum->shares;
        }
        for (int64_t row = kept; row < stop; row++) to->link[row] = to->best[to->link[row]];
        kept = found < 0 ? drop_shared(of, to, kept, stop) : stop;
    }
    to->pairs = kept;
    to->links = links;
}

/* Find the pairs of points and others that are near each other and the nearest of each other, in each pair of channels. `pairs`
   receives their number; above the capacity, nothing else is found. */
API int64_t core_search_points(const Points *of, Search *to) {
    predict(of, to);
    memset(to->first_pair, 0, (size_t)of->count * sizeof(int32_t));
    memset(to->pairs_of, 0, (size_t)of->count * sizeof(int32_t));
    to->pairs = 0;
    for (int side = ANY; side < SIDES; side++) to->pairs = list_nearest(of, to, of->sides + side, to->pairs);
    if (to->pairs > to->capacity) return 1;
    keep_mutual(of, to);
    return 0;
}

/* ---- Evidence that the points and others of two channels are the same events, as `nsys_pp.alignment.pairs`. ---- */

#define MOST_STARTS 8

typedef struct {
    double scatter; /* that is expected */
    double prior_count, lockstep, missing, missing_message;
    int64_t measurable, measurable_whole;
    /* What is found: evidence of the chosen pairs of channels, of those of exchanges, least scatter. */
    double evidence, exchange, sharpest;
    /* The pairs of the chosen pairs of channels, by point, then other: point, other and scatter; room for all pairs. */
    int64_t kept;
    int64_t *point, *other;
    double *of_pair;
    int64_t chosen_count, *chosen; /* channels of the points of these pairs of channels; room for all */
    /* Room, by pair of channels. */
    double *sums, *product, *of_link, *weight;
    /* The pairs of channels with most merit and their pairs, if `start_count` is not 0. */
    int64_t start_count, min_sharp;
    double wide, first_scatter;
    int64_t start_bounds[MOST_STARTS + 1];
    int64_t *start_point;
    double *start_residual;
} Evidence;

/* Sum the logarithms of likelihood ratios by pair of channels: of products, as a logarithm takes longer than its factor. */
static void sum_closeness(const Search *of, const Evidence *to) {
    const int32_t *links = of->link;
    const double *residuals = of->residual, scatter = to->scatter;
    double *sums = to->sums, *product = to->product, *ratios = to->of_pair, factor = 2 * to->lockstep * 0.3675 / scatter;
    for (int64_t link = 0; link < of->links; link++) {
        sums[link] = 0.0;
        product[link] = 1.0;
    }
    for (int64_t row = 0; row < of->pairs; row++) { /* apart from the products, so that several are divided at once */
        double apart = fabs(residuals[row]), relative = apart / scatter, spread = 1 + relative * relative / 3;
        ratios[row] = factor * (apart > scatter ? apart : scatter) / (spread * spread);
    }
    for (int64_t row = 0; row < of->pairs; row++) {
        int64_t link = links[row];
        double value = product[link] * ratios[row];
        if (value < 1e-200 || value > 1e200) {
            sums[link] += log(value);
            value = 1.0;
        }
        product[link] = value;
    }
    for (int64_t link = 0; link < of->links; link++) sums[link] += log(product[link]);
}

/* Weigh each pair of channels: `sums` receives its evidence, `of_link` its scatter, `weight` its weight in a vote, and `product`
   the evidence of operations that only one has. */
static void weigh_links(const Points *points, const Search *of, const Evidence *to) {
    double duration = of->within_ns > 1.0 ? of->within_ns : 1.0;
    for (int64_t link = 0; link < of->links; link++) {
        int64_t channel = of->numbers[link] / points->other_channel_count, number = of->pair_count[link];
        int64_t other = of->numbers[link] % points->other_channel_count, own_count = number, other_count = number;
        if (of->own_within[channel] > own_count) own_count = of->own_within[channel];
        if (of->others_within[other] > other_count) other_count = of->others_within[other];
        double count = (double)number, only_one = (double)(own_count + other_count - 2 * number);
        double unexplained = only_one, least = count > 1 ? count : 1, usual = to->scatter;
        if (points->is_message[channel]) unexplained = only_one > count ? only_one - count : 0.0;
        double missing = -(points->is_message[channel] ? to->missing_message : to->missing) * unexplained;
        double rate = (double)(own_count > other_count ? own_count : other_count) / duration;
        double independent = (8 + 2 * sqrt(count)) / least;
        if (independent > 1) independent = 1;
        double scatter = sqrt((of->squares[link] + to->prior_count * (usual * usual)) / (count + to->prior_count));
        double first = log(1 / (2 * to->lockstep * rate * (scatter > usual ? scatter : usual)));
        if (!(first > 0)) first = 0.0;
        double all = count + only_one;
        to->sums[link] = (to->sums[link] * independent + first + missing) * (of->shares[link] / count);
        to->of_link[link] = scatter;
        to->weight[link] = sqrt(count) / (all > 1 ? all : 1);
        to->product[link] = missing;
    }
}

/* Choose the pair of channels with most evidence, more than none, for each channel of the points, and sum theirs. `product`
   receives 1 for the chosen ones and 0 for all others. */
static void choose_links(const Points *points, const Search *of, Evidence *to) {
    double *sums = to->sums, *evidence = to->of_pair, least = INFINITY;
    int64_t count = 0, exchanges = 0;
    for (int64_t link = 0; link < of->links;) {
        int64_t channel = of->numbers[link] / points->other_channel_count, best = link, at = link;
        for (; at < of->links && of->numbers[at] / points->other_channel_count == channel; at++)
            if (sums[at] > sums[best]) best = at;
        for (; link < at; link++) {
            double missing = to->product[link];
            to->product[link] = 0.0;
            if (link != best || !(sums[link] > 0)) continue;
            int64_t number = of->pair_count[link];
            to->product[link] = 1.0;
            to->chosen[count] = channel;
            evidence[count++] = sums[link];
            if (number >= to->measurable || (number >= to->measurable_whole && missing == 0)) {
                double sharp = sqrt(of->squares[link] / (double)number);
                if (sharp < least) least = sharp;
            }
        }
    }
    to->evidence = sum_by_halves(evidence, count);
    for (int64_t at = 0; at < count; at++)
        if (points->is_exchange[to->chosen[at]]) evidence[exchanges++] = evidence[at];
    to->exchange = sum_by_halves(evidence, exchanges);
    to->sharpest = least;
    to->chosen_count = count;
}

/* Find the pairs of channels with many pairs of little scatter, the best first, and list their pairs. `sums` and `of_link` are
   no longer needed. */
static void find_starts(const Search *of, Evidence *to) {
    double *sums = to->sums, *merits = to->of_link;
    int64_t chosen[MOST_STARTS], count = 0, listed = 0;
    for (int64_t link = 0; link < of->links; link++) sums[link] = merits[link] = 0.0;
    for (int64_t row = 0; row < of->pairs; row++) {
        sums[of->link[row]] += of->residual[row];
        merits[of->link[row]] += to->weight[of->link[row]];
    }
    for (int64_t link = 0; link < of->links; link++) {
        double number = (double)of->pair_count[link], mean = sums[link] / number;
        double square = of->squares[link] / number - mean * mean;
        double spread = number < (double)to->min_sharp ? to->wide : sqrt(square > 0 ? square : 0.0);
        merits[link] /= spread + to->first_scatter;
        int64_t at = count;
        for (; at > 0 && merits[chosen[at - 1]] < merits[link]; at--)
            if (at < to->start_count) chosen[at] = chosen[at - 1];
        if (at < to->start_count) chosen[at] = link;
        if (count < to->start_count) count++;
    }
    for (int64_t number = 0; number < to->start_count; number++) {
        to->start_bounds[number] = listed;
        if (number >= count) continue;
        for (int64_t row = 0; row < of->pairs; row++) {
            if (of->link[row] != chosen[number]) continue;
            to->start_point[listed] = of->point[row];
            to->start_residual[listed++] = of->residual[row];
        }
    }
    to->start_bounds[to->start_count] = listed;
}

/* Find the evidence of the pairs that `core_search_points` found. */
static void weigh_pairs(const Points *points, const Search *of, Evidence *to) {
    sum_closeness(of, to);
    weigh_links(points, of, to);
    choose_links(points, of, to);
    to->kept = 0;
}

/* Weigh the pairs that `core_search_points` found, and list them, or those of starts. */
API int64_t core_weigh(const Points *points, const Search *of, Evidence *to) {
    if (to->start_count > MOST_STARTS) return 1;
    weigh_pairs(points, of, to);
    if (to->start_count) {
        find_starts(of, to);
        return 0;
    }
    if (!to->chosen_count) return 0;
    for (int64_t point = 0; point < points->count; point++) {
        int64_t first = of->first_pair[point], stop = first + of->pairs_of[point];
        for (int64_t row = first; row < stop; row++) {
            if (to->product[of->link[row]] == 0.0) continue;
            to->point[to->kept] = point;
            to->other[to->kept] = of->other[row];
            to->of_pair[to->kept++] = to->of_link[of->link[row]];
        }
    }
    return 0;
}

/* ---- Votes of pairs of points and others for offsets, as `nsys_pp.alignment.candidates`. ---- */

#define MOST_HALVES (1 << 22)
#define FEW_VOTES 16
#define SLOTS 16           /* of a half: its votes are few in each */
#define MANY_HALVES (1 << 16) /* that have one slot each */

typedef struct {
    /* Of each voter: time and expected time, channel, and the rows of the others that it may vote for. */
    int64_t count;
    const double *end, *expected;
    const int64_t *channel, *low, *high;
    /* Of each of the others. */
    const double *times;
    const int64_t *other_channel;
    int64_t other_channel_count;
    double half_width;  /* largest distance of another from the expected time */
    double width, drift; /* of a window of offsets, without drift and for each ns of the time between voters */
    int64_t sufficient;  /* windows with most votes that are kept */
    double near;         /* distance from the expected time of votes that are kept as well */
    /* What is kept, by offset; room for the rows of all voters. */
    double *time, *offset, *weight;
    int64_t *voter, *link, votes;
    /* Halves of windows with such votes: number, first vote (and the end) and sum of weights. */
    int64_t *half, *bounds, halves;
    double *sums;
    int64_t *inside; /* votes of each voter */
} Votes;

typedef struct {
    double offset;
    int32_t voter, other;
} Vote;

typedef struct {
    double least, width; /* first offset, width of a half */
    int64_t count, votes; /* of halves; of votes, all in all */
    double *weight;       /* of a window: a half and the one after it */
    int32_t *half_of;     /* each vote, in order of voters; then slots of those that are kept */
    uint8_t *is_kept;     /* each half */
    int32_t *kept_number;  /* number of each half among those that are kept; or -1 */
    int64_t of_half;      /* slots of each half, a power of 2 */
    int64_t slots, *next; /* all slots; votes of those before each, and of itself once they are listed */
    Vote *kept;           /* votes that are kept, and room for as many; room for all votes, twice */
} Halves;

/* Sort votes by offset, stable. room: for as many. */
static void sort_votes(int64_t count, Vote *votes, Vote *room) {
    if (count <= FEW_VOTES) {
        for (int64_t number = 1; number < count; number++) {
            Vote vote = votes[number];
            int64_t at = number;
            for (; at > 0 && votes[at - 1].offset > vote.offset; at--) votes[at] = votes[at - 1];
            votes[at] = vote;
        }
        return;
    }
    int64_t half = count / 2, left = 0, right = half;
    sort_votes(half, votes, room);
    sort_votes(count - half, votes + half, room);
    for (int64_t at = 0; at < count; at++) {
        int takes_left = right == count || (left < half && votes[left].offset <= votes[right].offset);
        room[at] = votes[takes_left ? left++ : right++];
    }
    memcpy(votes, room, (size_t)count * sizeof(Vote));
}

static int may_vote(const Votes *of, int64_t voter, int64_t row) {
    return distance(of->times[row], of->expected[voter]) <= of->half_width;
}

/* Count the votes of each voter, and find the halves of windows; return 1 where these are too many. */
static int count_votes(Votes *of, Halves *halves) {
    double least = 0.0, most = 0.0, first = 0.0, last = 0.0;
    int64_t votes = 0;
    for (int64_t voter = 0; voter < of->count; voter++) {
        double end = of->end[voter];
        int64_t before = votes;
        for (int64_t row = of->low[voter]; row < of->high[voter]; row++) {
            if (!may_vote(of, voter, row)) continue;
            double offset = of->times[row] - end;
            if (!votes || offset < least) least = offset;
            if (!votes || offset > most) most = offset;
            votes++;
        }
        of->inside[voter] = votes - before;
        if (votes == before) continue;
        if (!before || end < first) first = end;
        if (!before || end > last) last = end;
    }
    halves->votes = votes;
    halves->least = least;
    halves->width = (of->width + of->drift * (last - first)) / 2;
    if (!votes) return 0;
    if (!(halves->width > 0 && halves->width < INFINITY)) return 1;
    double number = floor((most - least) / halves->width);
    if (!(number < MOST_HALVES)) return 1;
    halves->count = (int64_t)number + 1;
    return 0;
}

/* Weigh all windows, and keep the halves of those with most votes, and those with votes near the expected time. Sums in order
   of voters differ from those in order of offsets by rounding, so windows with slightly less are kept, too. */
static void keep_halves(Votes *of, Halves *halves) {
    int64_t vote = 0, count = halves->count, windows = 0;
    double *weight = halves->weight, *sorted = weight + count;
    for (int64_t voter = 0; voter < of->count; voter++) {
        if (!of->inside[voter]) continue;
        double share = 1.0 / (double)of->inside[voter];
        for (int64_t row = of->low[voter]; row < of->high[voter]; row++) {
            if (!may_vote(of, voter, row)) continue;
            int64_t half = (int64_t)((of->times[row] - of->end[voter] - halves->least) / halves->width); /* not negative */
            halves->half_of[vote++] = (int32_t)half;
            weight[half] += share;
            if (distance(of->times[row], of->expected[voter]) <= of->near) halves->is_kept[half] = 1;
        }
    }
    for (int64_t half = 0; half < count; half++) {
        if (weight[half] == 0.0) continue;
        if (half + 1 < count) weight[half] += weight[half + 1];
        sorted[windows++] = weight[half];
    }
    double least = 0.0;
    if (windows > of->sufficient) least = select_value(sorted, windows, windows - of->sufficient) * (1 - 1e-9);
    for (int64_t half = 0; half < count; half++) {
        if (weight[half] == 0.0 || weight[half] < least) continue;
        halves->is_kept[half] = 1;
        if (half + 1 < count) halves->is_kept[half + 1] = 1;
    }
}

/* Number the slots of the halves that are kept; return -1 where memory is short. */
static int number_slots(Halves *halves) {
    int64_t kept = 0;
    halves->kept_number = allocate(halves->count, sizeof(int32_t));
    if (!halves->kept_number) return -1;
    for (int64_t half = 0; half < halves->count; half++) halves->kept_number[half] = halves->is_kept[half] ? (int32_t)kept++ : -1;
    halves->of_half = kept <= MANY_HALVES ? SLOTS : 1;
    halves->slots = kept * halves->of_half;
    halves->next = allocate_zeros(halves->slots + 1, sizeof(int64_t));
    return halves->next ? 0 : -1;
}

/* List the votes of halves that are kept, by slot: first in order of voters, with the slot of each in `half_of`. */
static void list_kept(Votes *of, Halves *halves) {
    int64_t vote = 0, kept = 0, number = halves->of_half;
    Vote *found = halves->kept + halves->votes;
    for (int64_t voter = 0; voter < of->count; voter++) {
        if (!of->inside[voter]) continue;
        for (int64_t row = of->low[voter]; row < of->high[voter]; row++) {
            if (!may_vote(of, voter, row)) continue;
            int64_t half = halves->half_of[vote++], first = halves->kept_number[half];
            if (first < 0) continue;
            double offset = of->times[row] - of->end[voter], from = (offset - halves->least) / halves->width;
            int64_t slot = first * number + (int64_t)(from * (double)number) - half * number; /* a power of 2: the product is exact */
            halves->next[slot + 1]++;
            halves->half_of[kept] = (int32_t)slot; /* not after that of a vote that was not read */
            found[kept++] = (Vote){offset, (int32_t)voter, (int32_t)row};
        }
    }
    of->votes = kept;
    for (int64_t slot = 0; slot < halves->slots; slot++) halves->next[slot + 1] += halves->next[slot];
    for (vote = 0; vote < kept; vote++) halves->kept[halves->next[halves->half_of[vote]]++] = found[vote];
}

/* Order the votes that are kept by offset, and sum them by halves. */
static void order_votes(Votes *of, Halves *halves) {
    int64_t at = 0, first = 0;
    for (int64_t slot = 0; slot < halves->slots; first = halves->next[slot++])
        sort_votes(halves->next[slot] - first, halves->kept + first, halves->kept + halves->votes);
    for (int64_t half = 0; half < halves->count; half++) {
        if (halves->kept_number[half] < 0) continue;
        int64_t stop = halves->next[(halves->kept_number[half] + 1) * halves->of_half - 1];
        if (stop == at) continue;
        double sum = 0.0;
        of->half[of->halves] = half;
        of->bounds[of->halves] = at;
        for (; at < stop; at++) {
            Vote vote = halves->kept[at];
            of->time[at] = of->end[vote.voter];
            of->voter[at] = vote.voter;
            of->offset[at] = vote.offset;
            of->weight[at] = 1.0 / (double)of->inside[vote.voter];
            of->link[at] = of->channel[vote.voter] * of->other_channel_count + of->other_channel[vote.other];
            sum += of->weight[at];
        }
        of->sums[of->halves++] = sum;
    }
    of->bounds[of->halves] = of->votes;
}

/* Collect votes for offsets, by offset, and sum them by halves of windows; those of windows with few votes are left out. */
API int64_t core_vote(Votes *of) {
    Halves halves = {0};
    of->votes = of->halves = 0;
    if (count_votes(of, &halves)) return 1;
    if (!halves.votes) return 0;
    halves.weight = allocate_zeros(2 * halves.count, sizeof(double));
    halves.half_of = allocate(halves.votes, sizeof(int32_t));
    halves.is_kept = allocate_zeros(halves.count, 1);
    int64_t result = !halves.weight || !halves.half_of || !halves.is_kept ? -1 : 0;
    if (!result) {
        keep_halves(of, &halves);
        result = number_slots(&halves);
    }
    if (!result) {
        halves.kept = allocate(2 * halves.votes, sizeof(Vote));
        result = halves.kept ? 0 : -1;
    }
    if (!result) {
        list_kept(of, &halves);
        order_votes(of, &halves);
    }
    release(halves.weight);
    release(halves.half_of);
    release(halves.is_kept);
    release(halves.kept_number);
    release(halves.next);
    release(halves.kept);
    return result;
}

/* ---- Lines through points. Sums are added in the order of numpy, so that results are equal to the last bit. ---- */

/* Return the median; the values are ordered in part. */
static double find_median(double *values, int64_t count) {
    int64_t low = (count - 1) / 2, high = count / 2;
    double upper = select_value(values, count, high), lower = upper;
    if (low < high) {
        lower = values[0];
        for (int64_t row = 1; row < high; row++)
            if (values[row] > lower) lower = values[row];
    }
    return (lower + upper) / 2;
}

static int are_finite(const double *values, int64_t count) {
    double sum = 0.0;
    for (int64_t row = 0; row < count; row++) sum += values[row] - values[row]; /* not a number, if infinite or none */
    return sum == 0.0;
}

/* Fit a line to points by least squares with Cauchy weights, in some rounds.
   noise: relative, of each point, above 0; or NULL. line: offset, rate and center of the first line; receives the fitted one.
   room: 5 times `count`. */
API int64_t core_fit_line(
    int64_t count, const double *times, const double *values, const double *noise, double floor, double drift,
    int64_t rounds, double *room, double *line
) {
    if (!are_finite(times, count) || !are_finite(values, count) || !are_finite(line, 3)) return 1;
    if (noise && !are_finite(noise, count)) return 1;
    double *relative = room, *x = room + count, *scratch = room + 2 * count;
    double *weights = room + 3 * count, *lever = room + 4 * count;
    double center = (0.0 + sum_by_halves(times, count)) / (double)count;
    double offset = line[0] + line[1] * (center - line[2]), rate = line[1];
    for (int64_t row = 0; row < count; row++) x[row] = times[row] - center;
    if (noise) {
        memcpy(scratch, noise, (size_t)count * sizeof(double));
        double usual = find_median(scratch, count);
        for (int64_t row = 0; row < count; row++) relative[row] = noise[row] / usual;
    }
    for (int64_t round = 0; round < rounds; round++) {
        for (int64_t row = 0; row < count; row++) {
            double residual = values[row] - (offset + rate * (times[row] - center));
            if (noise) residual /= relative[row];
            weights[row] = residual;
            scratch[row] = residual < 0 ? -residual : residual;
        }
        if (!are_finite(scratch, count)) return 1;
        double scale = 1.4826 * find_median(scratch, count);
        if (scale < floor) scale = floor;
        for (int64_t row = 0; row < count; row++) {
            double apart = weights[row] / (2 * scale);
            weights[row] = 1 / (1 + apart * apart);
            if (noise) weights[row] /= relative[row] * relative[row];
            lever[row] = weights[row] * x[row];
        }
        double total = sum_by_halves(weights, count), sx = sum_by_halves(lever, count);
        for (int64_t row = 0; row < count; row++) scratch[row] = lever[row] * x[row];
        double sxx = sum_by_halves(scratch, count);
        for (int64_t row = 0; row < count; row++) scratch[row] = weights[row] * values[row];
        double sy = sum_by_halves(scratch, count);
        for (int64_t row = 0; row < count; row++) scratch[row] = lever[row] * values[row];
        double sxy = sum_by_halves(scratch, count);
        sxx += (scale / drift) * (scale / drift);
        rate = (total * sxy - sx * sy) / (total * sxx - sx * sx);
        offset = (sy - rate * sx) / total;
    }
    line[0] = offset;
    line[1] = rate;
    line[2] = center;
    return 0;
}

/* Find the rate by which most points are within a width of a level; of equal ones the first.
   rates: to try. times: from their center. line: receives the median level of these points, and the rate.
   keys, rows: room for twice as many; level, order: for as many. */
API int64_t core_find_line(
    int64_t count, const double *times, const double *values, int64_t rate_count, const double *rates, double width,
    double *level, int64_t *ordered, uint32_t *order, uint64_t *keys, uint32_t *rows, double *line
) {
    if (!are_finite(times, count) || !are_finite(values, count)) return 1;
    int64_t most = 0;
    for (int64_t number = 0; number < rate_count; number++) {
        for (int64_t row = 0; row < count; row++) ordered[row] = to_ordered(values[row] - rates[number] * times[row]);
        if (number) sort_nearly_sorted(count, ordered, order, keys, rows);
        else sort_rows(count, ordered, order, keys, rows);
        for (int64_t at = 0; at < count; at++) level[at] = values[order[at]] - rates[number] * times[order[at]];
        int64_t best = 0, best_stop = 0, stop = 0;
        for (int64_t at = 0; at < count; at++) {
            while (stop < count && level[stop] <= level[at] + width) stop++;
            if (stop - at > best_stop - best) {
                best = at;
                best_stop = stop;
            }
        }
        if (best_stop - best <= most) continue;
        most = best_stop - best;
        line[0] = (level[best + (most - 1) / 2] + level[best + most / 2]) / 2;
        line[1] = rates[number];
    }
    return 0;
}

/* List rates to try, the smallest first: 0, or as many as `count`, an odd number, from -most to most, as `np.linspace`. */
static void list_rates(int64_t count, double most, double *rates) {
    double step = count > 1 ? (most + most) / (double)(count - 1) : 0.0;
    rates[0] = count > 1 ? (double)(count / 2) * step - most : 0.0;
    for (int64_t number = 1; number <= count / 2; number++) {
        double low = (double)(count / 2 - number) * step - most, high = (double)(count / 2 + number) * step - most;
        if (number == count / 2) high = most;
        int is_low_first = fabs(low) <= fabs(high);
        rates[2 * number - 1] = is_low_first ? low : high;
        rates[2 * number] = is_low_first ? high : low;
    }
}

/* Find a line through some points each, as `core_find_line` with as many rates as the times between them need.
   bounds: first row of each line, and the end. rows: of the points. most: largest rate. most_rates: largest number of rates, odd.
   lines: receives offset, rate and center of each. Return 1 where a number is infinite, or none; -1 where memory is short. */
API int64_t core_find_lines(
    int64_t count, const int64_t *bounds, const int64_t *rows, const double *times, const double *values, double width,
    double most, int64_t most_rates, double *lines
) {
    int64_t size = 1, result = 0;
    for (int64_t number = 0; number < count; number++)
        if (bounds[number + 1] - bounds[number] > size) size = bounds[number + 1] - bounds[number];
    double *room = allocate(4 * size + most_rates, sizeof(double));
    int64_t *words = allocate(3 * size, sizeof(int64_t)); /* keys of rows: twice as many */
    uint32_t *order = allocate(3 * size, sizeof(uint32_t));
    if (!room || !words || !order) result = -1;
    double *own = room, *x = room + size, *y = room + 2 * size, *level = room + 3 * size, *rates = room + 4 * size;
    for (int64_t number = 0; !result && number < count; number++) {
        int64_t first = bounds[number], points = bounds[number + 1] - first;
        double *line = lines + 3 * number, span = 0.0;
        for (int64_t at = 0; at < points; at++) {
            own[at] = x[at] = times[rows[first + at]];
            y[at] = values[rows[first + at]];
        }
        if (!are_finite(x, points) || !are_finite(y, points)) result = 1;
        if (result) break;
        double center = find_median(own, points);
        for (int64_t at = 0; at < points; at++) {
            x[at] -= center;
            if (fabs(x[at]) > span) span = fabs(x[at]);
        }
        double wanted = points < 3 ? 1.0 : 1 + 2 * ceil(most * span / (width / 4));
        int64_t rate_count = wanted < (double)most_rates ? (int64_t)wanted : most_rates;
        list_rates(rate_count, most, rates);
        line[0] = line[1] = 0.0;
        line[2] = center;
        result = core_find_line(
            points, x, y, rate_count, rates, width, level, words, order, (uint64_t *)(words + size), order + size, line
        );
    }
    release(room);
    release(words);
    release(order);
    return result;
}

/* Sum values by section, each as numpy sums an array. */
API int64_t core_sum_sections(int64_t count, const int64_t *bounds, const double *values, double *sums) {
    for (int64_t number = 0; number < count; number++)
        sums[number] = 0.0 + sum_by_halves(values + bounds[number], bounds[number + 1] - bounds[number]);
    return 0;
}

/* ---- Insertion of rows into a column of 8 bytes. ---- */

/* Insert each of the others before a row of the column. at: of each, ascending, up to the number of rows. to: room for all. */
API int64_t core_insert_rows(
    int64_t count, const uint64_t *values, int64_t added, const int64_t *at, const uint64_t *others, uint64_t *to
) {
    int64_t from = 0;
    for (int64_t number = 0; number < added; number++) {
        int64_t stop = at[number];
        memcpy(to, values + from, (size_t)(stop - from) * sizeof(uint64_t));
        to += stop - from;
        from = stop;
        *to++ = others[number];
    }
    memcpy(to, values + from, (size_t)(count - from) * sizeof(uint64_t));
    return 0;
}

/* ---- Many lines between points and others in one call, as `nsys_pp.alignment.evidence`. A call that returns 1 needs room for more
   pairs, and goes on from the lines that are done. ---- */

/* Points that are evidence against a line unless their channel is paired, by section of the others. */
typedef struct {
    const int64_t *point, *bounds; /* first point of each section, and the end; or NULL */
    uint8_t *is_paired;            /* room for each channel of the points */
    double most;                   /* evidence by the points of a section */
} Against;

typedef struct {
    int64_t count, done;
    const double *lines; /* offset, rate and center of each */
    Against against;
    /* Of each line by each scatter: evidence, that of exchanges, least scatter. */
    int64_t scatter_count;
    const double *scatters;
    double *evidence, *exchange, *sharpest;
    /* Points and residuals of the pairs of channels with most merit of each line, if these are asked for; first and end of each. */
    int64_t start_capacity, *start_bounds;
    int32_t *start_point;
    double *start_residual;
} Lines;

static void set_line(Search *to, const double *line) {
    to->offset = line[0];
    to->rate = line[1];
    to->center = line[2];
}

/* Return the evidence against a line by points of unpaired channels, where others of their key were recorded at other times. */
static double contradict(const Points *points, const Search *of, const Evidence *to, const Against *tested) {
    double against = 0.0;
    if (!tested->bounds) return against;
    memset(tested->is_paired, 0, (size_t)points->channel_count);
    for (int64_t at = 0; at < to->chosen_count; at++) tested->is_paired[to->chosen[at]] = 1;
    for (int64_t section = 0; section < points->section_count; section++) {
        int64_t first = tested->bounds[section], stop = tested->bounds[section + 1], own = 0;
        double least = INFINITY, most = -INFINITY;
        for (int64_t at = first; at < stop; at++) {
            int64_t point = tested->point[at];
            if (tested->is_paired[points->channel[point]]) continue;
            double time = of->predicted[point];
            if (time < least) least = time;
            if (time > most) most = time;
        }
        if (!(least <= most)) continue;
        int64_t begin = points->sections[section], count = points->sections[section + 1] - begin;
        const double *times = points->other_time + begin;
        double since = least > times[0] ? least : times[0], until = most < times[count - 1] ? most : times[count - 1];
        for (int64_t at = first; at < stop; at++) {
            double time = of->predicted[tested->point[at]];
            own += !tested->is_paired[points->channel[tested->point[at]]] && time >= since && time <= until;
        }
        int64_t low = find_time(times, count, since, 0), high = find_time(times, count, until, count - 1);
        while (high < count && times[high] <= until) high++;
        int64_t others = high > low ? high - low : 0, both = own < others ? own : others;
        double value = to->missing * (double)both;
        against -= value < tested->most ? value : tested->most;
    }
    return against;
}

/* Weigh each line by each scatter; return 2 without room for its starts. */
API int64_t core_weigh_lines(const Points *points, Search *of, Evidence *to, Lines *lines) {
    int64_t starts = to->start_count;
    if (starts > MOST_STARTS || (starts && lines->scatter_count != 1)) return 3;
    for (; lines->done < lines->count; lines->done++) {
        int64_t number = lines->done, at = number * lines->scatter_count;
        set_line(of, lines->lines + 3 * number);
        if (core_search_points(points, of)) return 1;
        for (int64_t scatter = 0; scatter < lines->scatter_count; scatter++, at++) {
            to->scatter = lines->scatters[scatter];
            weigh_pairs(points, of, to);
            lines->evidence[at] = to->evidence + contradict(points, of, to, &lines->against);
            lines->exchange[at] = to->exchange;
            lines->sharpest[at] = to->sharpest;
        }
        if (!starts) continue;
        find_starts(of, to);
        int64_t *bounds = lines->start_bounds + number * starts, listed = to->start_bounds[starts];
        if (bounds[0] + listed > lines->start_capacity) return 2;
        for (int64_t start = 1; start <= starts; start++) bounds[start] = bounds[0] + to->start_bounds[start];
        for (int64_t row = 0; row < listed; row++) lines->start_point[bounds[0] + row] = (int32_t)to->start_point[row];
        memcpy(lines->start_residual + bounds[0], to->start_residual, (size_t)listed * sizeof(double));
    }
    return 0;
}

typedef struct {
    int64_t count, done; /* first lines */
    const double *lines; /* offset, rate and center of each */
    /* Points and residuals that fits begin with: `starts` lists of each line; the first of each list, and the end of the last. */
    int64_t starts;
    const int64_t *bounds;
    const int32_t *point;
    const double *residual;
    double scatter; /* that is expected */
    double floor, drift; /* of fits; lines closer than `floor` to one before, of the same first line, are left out */
    int64_t rounds;
    /* Receive the lines, with room for `starts` of each first line, and their number. */
    double *fitted;
    int64_t *fitted_count;
    /* Lines that were fitted to starts, nine numbers of each: line, the line that is fitted to its pairs, and its evidence, that of
       exchanges and least scatter; room for all. */
    double *tested;
    int64_t tested_count;
    Against against;
} Fits;

/* Fit a line to points. room: 5 times `count`. Return 1 where a number is infinite, or none. */
static int64_t fit_points(
    int64_t count, const double *times, const double *values, const double *noise, const Fits *fits, double *room, double *line
) {
    if (!count) return 0;
    if (count > 1) return core_fit_line(count, times, values, noise, fits->floor, fits->drift, fits->rounds, room, line);
    line[0] = values[0];
    line[1] = 0.0;
    line[2] = times[0];
    return 0;
}

/* Fit a line to the pairs of a line; `weights` receives the evidence of this, that of exchanges and the least scatter. */
static int64_t fit_pairs(const Points *points, Search *of, Evidence *to, const Fits *fits, double *line, double *weights) {
    set_line(of, line);
    if (core_search_points(points, of)) return 1;
    to->scatter = fits->scatter;
    core_weigh(points, of, to);
    weights[0] = to->evidence + contradict(points, of, to, &fits->against);
    weights[1] = to->exchange;
    weights[2] = to->sharpest;
    int64_t count = to->kept, result;
    if (!count) return 0;
    double *room = allocate(7 * count, sizeof(double)), *times = room, *values = room + count;
    if (!room) return -1;
    for (int64_t row = 0; row < count; row++) {
        times[row] = points->end[to->point[row]];
        values[row] = points->other_time[to->other[row]] - times[row];
    }
    result = fit_points(count, times, values, to->of_pair, fits, room + 2 * count, line);
    release(room);
    return result ? 2 : 0;
}

/* Fit a line to a start, then to the pairs of the fitted line; starts that are fitted by an equal line have an equal result. */
static int64_t fit_start(const Points *points, Search *of, Evidence *to, Fits *fits, int64_t first, int64_t stop, double *line) {
    int64_t count = stop - first, result;
    double *room = allocate(7 * count, sizeof(double)), *times = room, *values = room + count;
    if (!room) return -1;
    for (int64_t row = 0; row < count; row++) {
        double time = points->end[fits->point[first + row]];
        times[row] = time;
        values[row] = fits->residual[first + row] + (line[0] + line[1] * (time - line[2]));
    }
    result = fit_points(count, times, values, NULL, fits, room + 2 * count, line);
    release(room);
    if (result) return 2;
    double *tested = fits->tested;
    for (int64_t at = 0; at < fits->tested_count; at++, tested += 9)
        if (tested[0] == line[0] && tested[1] == line[1] && tested[2] == line[2]) {
            memcpy(line, tested + 3, 3 * sizeof(double));
            return 0;
        }
    memcpy(tested, line, 3 * sizeof(double));
    if ((result = fit_pairs(points, of, to, fits, line, tested + 6))) return result;
    memcpy(tested + 3, line, 3 * sizeof(double));
    fits->tested_count++;
    return 0;
}

/* Fit lines to the starts of each first line. Return 2 where a number is infinite, or none; -1 where memory is short. */
API int64_t core_fit_starts(const Points *points, Search *of, Evidence *to, Fits *fits) {
    to->start_count = 0;
    for (; fits->done < fits->count; fits->done++) {
        double *fitted = fits->fitted + 3 * fits->starts * fits->done;
        const int64_t *bounds = fits->bounds + (fits->starts + 1) * fits->done;
        int64_t listed = 0;
        for (int64_t start = 0; start < fits->starts; start++) {
            if (bounds[start] == bounds[start + 1]) continue;
            double *line = fitted + 3 * listed;
            memcpy(line, fits->lines + 3 * fits->done, 3 * sizeof(double));
            int64_t result = fit_start(points, of, to, fits, bounds[start], bounds[start + 1], line), is_apart = 1;
            if (result) return result;
            for (int64_t other = 0; other < listed; other++) {
                const double *before = fitted + 3 * other;
                is_apart &= fabs(before[0] + before[1] * (line[2] - before[2]) - line[0]) > fits->floor;
            }
            listed += is_apart;
        }
        fits->fitted_count[fits->done] = listed;
    }
    return 0;
}

/* ---- Weighted sums by number, in order of the rows, as `np.bincount` adds them; several at once, as each waits for its last. ---- */

/* Sum the products of observations and their weights. number: of each row. group: of each number. sums: of weights, of weights times
   x, and of values, by number, one after the other; group_sums: of weights times x squared, and of values times x, by group. */
API int64_t core_sum_levers(
    int64_t count, const int64_t *number, const double *weights, const double *x, const double *values, int64_t numbers,
    const int64_t *group, int64_t groups, double *sums, double *group_sums
) {
    memset(sums, 0, (size_t)(3 * numbers) * sizeof(double));
    memset(group_sums, 0, (size_t)(2 * groups) * sizeof(double));
    for (int64_t row = 0; row < count; row++) {
        int64_t own = number[row], of = group[own];
        double lever = weights[row] * x[row];
        sums[own] += weights[row];
        sums[numbers + own] += lever;
        sums[2 * numbers + own] += values[row];
        group_sums[of] += lever * x[row];
        group_sums[groups + of] += values[row] * x[row];
    }
    return 0;
}

/* Sum the products of two observations. entry: of each row. sums: of -weight * share, times x of the second, and times both x, by
   entry, one after the other. */
API int64_t core_sum_products(
    int64_t count, const int64_t *first, const int64_t *second, const int64_t *entry, const double *weights,
    const double *share, const double *x, int64_t entries, double *sums
) {
    memset(sums, 0, (size_t)(3 * entries) * sizeof(double));
    for (int64_t row = 0; row < count; row++) {
        int64_t own = first[row], other = second[row], at = entry[row];
        double value = -weights[own] * share[other];
        sums[at] += value;
        sums[entries + at] += value * x[other];
        sums[2 * entries + at] += value * x[own] * x[other];
    }
    return 0;
}

/* ---- Packets: records of several shapes, interleaved. ---- */

#define MOST_GROUPS 65535

typedef struct {
    int64_t count; /* of packets */
    const int64_t *positions;
    const uint8_t *packet; /* what all packets of the group share, with room for the columns */
    int64_t width, first_column, stop_column;
} Group; /* a row of six numbers of 64 bits */

typedef struct {
    const uint8_t *values;
    int64_t value_bytes, offset, width, is_raw; /* of the values; of the column in a packet */
} PacketColumn; /* a row of five */

/* Write a number as a varint of a width, least significant seven bits first. */
static inline void write_varint(uint8_t *to, uint64_t value, int64_t width) {
    if (width == 1) {
        *to = (uint8_t)value;
        return;
    }
    if (width == 2) {
        to[0] = (uint8_t)(value | 0x80);
        to[1] = (uint8_t)(value >> 7);
        return;
    }
    for (int64_t at = 0; at < width - 1; at++, value >>= 7) to[at] = (uint8_t)(value | 0x80);
    to[width - 1] = (uint8_t)value;
}

/* Write the value of a row at its place in a packet. */
static void write_value(uint8_t *packet, const PacketColumn *column, int64_t row) {
    const uint8_t *value = column->values + row * column->value_bytes;
    uint8_t *to = packet + column->offset;
    if (column->is_raw) {
        memcpy(to, value, (size_t)column->width);
        return;
    }
    uint16_t word;
    uint32_t half;
    uint64_t number = *value;
    if (column->value_bytes == 2) {
        memcpy(&word, value, sizeof word); /* values need not be aligned */
        number = word;
    } else if (column->value_bytes == 4) {
        memcpy(&half, value, sizeof half);
        number = half;
    } else if (column->value_bytes == 8) memcpy(&number, value, sizeof number);
    write_varint(to, number, column->width);
}

/* Write the packets of groups, interleaved by their positions; return 1 where two packets have the same position.
   group_of: receives the group of each of `count` packets. start: receives the offset of each, and of the end.
   data: room for all of them. */
API int64_t core_write_packets(
    int64_t group_count, const Group *groups, const PacketColumn *columns, int64_t count, uint16_t *group_of,
    int64_t *start, uint8_t *data
) {
    for (int64_t position = 0; position < count; position++) group_of[position] = MOST_GROUPS;
    for (int64_t number = 0; number < group_count; number++)
        for (int64_t row = 0; row < groups[number].count; row++) {
            uint16_t *group = &group_of[groups[number].positions[row]];
            if (*group != MOST_GROUPS) return 1;
            *group = (uint16_t)number;
        }
    start[0] = 0;
    for (int64_t position = 0; position < count; position++)
        start[position + 1] = start[position] + groups[group_of[position]].width;
    for (int64_t number = 0; number < group_count; number++) {
        const Group *group = &groups[number];
        for (int64_t row = 0; row < group->count; row++) {
            uint8_t *packet = data + start[group->positions[row]];
            memcpy(packet, group->packet, (size_t)group->width);
            for (int64_t column = group->first_column; column < group->stop_column; column++)
                write_value(packet, &columns[column], row);
        }
    }
    return 0;
}

/* ---- Packed packets: columns as planes of bytes, written without arrays between. ---- */

enum { PLAIN, MAGNITUDES, DIFFERENCES, TO_OTHER, BY_OTHER }; /* methods of `byte_planes.py` */

typedef struct {
    int64_t method, planes, length, other; /* planes of a column, values in each */
    const uint8_t *values;
    int64_t offset, width, is_raw; /* in a packet */
} PlaneColumn;

typedef struct {
    int64_t count; /* of packets */
    const uint8_t *packet;
    int64_t width, first_column, stop_column;
} PlaneGroup;

static inline uint64_t from_magnitude(uint64_t value) { return (value >> 1) ^ (0 - (value & 1)); }

static void join_planes(int64_t planes, int64_t length, const uint8_t *values, uint64_t *words) {
    memset(words, 0, (size_t)length * sizeof *words);
    for (int64_t plane = 0; plane < planes; plane++, values += length)
        for (int64_t row = 0; row < length; row++) words[row] |= (uint64_t)values[row] << (8 * plane);
}

/* Decode a column whose values are stored for each row: any method but BY_OTHER. */
static void decode_stored(
    int64_t method, int64_t planes, int64_t length, const uint8_t *values, const uint64_t *other, uint64_t *words
) {
    uint64_t sum = 0;
    join_planes(planes, length, values, words);
    if (method == MAGNITUDES)
        for (int64_t row = 0; row < length; row++) words[row] = from_magnitude(words[row]);
    else if (method == DIFFERENCES)
        for (int64_t row = 0; row < length; row++) words[row] = sum += from_magnitude(words[row]);
    else if (method == TO_OTHER)
        for (int64_t row = 0; row < length; row++) words[row] = other[row] + from_magnitude(words[row]);
}

/* Decode a column of `count` values; table: room for the stored values of BY_OTHER. Return 1 where another column has a value that
   is not in the table. */
static int decode_planes(const PlaneColumn *column, int64_t count, const uint64_t *other, uint64_t *table, uint64_t *words) {
    if (column->method != BY_OTHER) {
        decode_stored(column->method, column->planes, column->length, column->values, other, words);
        return 0;
    }
    join_planes(column->planes, column->length, column->values, table);
    for (int64_t row = 0; row < count; row++) {
        if (other[row] >= (uint64_t)column->length) return 1;
        words[row] = table[other[row]];
    }
    return 0;
}

/* Write packed packets. Return 1 where a column refers to a value that is not there.
   group_of: of each of `count` packets. words: room for the values of all columns, by column. table: for the longest stored
   column. next: for a number per group, and the first of `words` per column. */
API int64_t core_write_planes(
    int64_t group_count, const PlaneGroup *groups, const PlaneColumn *columns, int64_t count, const uint8_t *group_of,
    uint64_t *words, uint64_t *table, int64_t *next, uint8_t *data
) {
    int64_t *first = next + group_count, at = 0;
    for (int64_t number = 0; number < group_count; number++) {
        const PlaneGroup *group = &groups[number];
        next[number] = 0;
        for (int64_t column = group->first_column; column < group->stop_column; column++, at += group->count) {
            const PlaneColumn *own = &columns[column];
            first[column] = at;
            const uint64_t *other = own->other < 0 ? NULL : words + first[group->first_column + own->other];
            if (decode_planes(own, group->count, other, table, words + at)) return 1;
        }
    }
    for (int64_t position = 0; position < count; position++) {
        int64_t number = group_of[position], row = next[number]++;
        const PlaneGroup *group = &groups[number];
        memcpy(data, group->packet, (size_t)group->width);
        for (int64_t column = group->first_column; column < group->stop_column; column++) {
            uint64_t value = words[first[column] + row];
            uint8_t *to = data + columns[column].offset;
            if (columns[column].is_raw) memcpy(to, &value, sizeof value);
            else write_varint(to, value, columns[column].width);
        }
        data += group->width;
    }
    return 0;
}

/* ---- Packets of rows: fields of any size, of which a row may lack some. ---- */

enum { UNSIGNED, SIGNED, RAW, NUMBER }; /* RAW: 8 bytes as they are. NUMBER: unsigned; a row with 0 lacks the field */

typedef struct {
    const uint8_t *values;
    const int64_t *rows;    /* of the values, by row; NULL: values are in order of the rows */
    const uint8_t *present; /* 0 where a value is absent; NULL: none is */
    int64_t value_bytes, kind;
} RowField; /* a row of five numbers of 64 bits */

typedef struct {
    int64_t first, stop; /* rows */
    int64_t low, high;   /* events: begins of the rows, and ends */
    const int64_t *begin;   /* event that begins each row */
    const uint64_t *delta;  /* of each event */
    int64_t field_count;
    const RowField *fields;
    uint8_t *shape_of; /* of each row from `first` on */
} RowBlock;

typedef struct {
    const uint8_t *packet;
    int64_t width, delta_at, delta_width, first_column, stop_column;
} RowShape; /* columns: field, offset, width */

#define MOST_SHAPES 255

/* Return a value as a number of 64 bits, with the sign of signed ones. */
static inline uint64_t load_value(const RowField *field, int64_t row) {
    const uint8_t *value = field->values + (field->rows ? field->rows[row] : row) * field->value_bytes;
    int is_signed = field->kind == SIGNED;
    uint16_t word;
    uint32_t half;
    uint64_t number;
    switch (field->value_bytes) {
    case 1: return is_signed ? (uint64_t)(int8_t)*value : *value;
    case 2: memcpy(&word, value, sizeof word); return is_signed ? (uint64_t)(int16_t)word : word;
    case 4: memcpy(&half, value, sizeof half); return is_signed ? (uint64_t)(int32_t)half : half;
    default: memcpy(&number, value, sizeof number); return number;
    }
}

static inline int has_field(const RowField *field, int64_t row) {
    if (field->kind == NUMBER) return load_value(field, row) != 0;
    return !field->present || field->present[field->rows ? field->rows[row] : row];
}

/* Group rows by the fields that they have. Return the number of shapes; -1 if there are more than `MOST_SHAPES`.
   keys: receives the fields of each shape, a bit for each nullable field. counts: receives the rows of each shape.
   bits: receives the bits that are set in any delta of a shape, then in any value of each of its fields; at the end in deltas of
   ends. key_of: room for a number per row. */
API int64_t core_find_shapes(const RowBlock *block, uint64_t *keys, int64_t *counts, uint64_t *bits, uint64_t *key_of) {
    int64_t rows = block->stop - block->first, fields = block->field_count, shapes = 0, bit = 0, shape = 0;
    memset(key_of, 0, (size_t)rows * sizeof *key_of);
    for (int64_t number = 0; number < fields; number++) {
        const RowField *field = &block->fields[number];
        if (!field->present && field->kind != NUMBER) continue;
        for (int64_t row = 0; row < rows; row++)
            key_of[row] |= (uint64_t)has_field(field, block->first + row) << bit;
        bit++;
    }
    for (int64_t row = 0; row < rows; row++) {
        if (!shapes || keys[shape] != key_of[row])
            for (shape = 0; shape < shapes && keys[shape] != key_of[row];) shape++;
        if (shape == shapes) {
            if (shapes == MOST_SHAPES) return -1;
            keys[shapes] = key_of[row];
            counts[shapes++] = 0;
        }
        counts[shape]++;
        block->shape_of[row] = (uint8_t)shape;
    }
    memset(bits, 0, (size_t)(shapes * (fields + 1) + 1) * sizeof *bits);
    uint64_t *ends = &bits[shapes * (fields + 1)];
    for (int64_t event = block->low, row = block->first; event < block->high; event++) {
        if (row < block->stop && block->begin[row] == event)
            bits[block->shape_of[row++ - block->first] * (fields + 1)] |= block->delta[event];
        else *ends |= block->delta[event];
    }
    for (int64_t number = 0; number < fields; number++) {
        const RowField *field = &block->fields[number];
        if (field->kind == RAW) continue;
        for (int64_t row = 0; row < rows; row++) /* absent ones are no bits */
            if (has_field(field, block->first + row))
                bits[block->shape_of[row] * (fields + 1) + 1 + number] |= load_value(field, block->first + row);
    }
    return shapes;
}

/* Write the packets of the events of a block, in order: a begin for each row, by its shape, and ends.
   columns: of shapes. opening: packet before a row that begins a subtrack; openings: these rows, then the value of each. Return
   the bytes written. */
API int64_t core_write_rows(
    const RowBlock *block, const RowShape *shapes, const int64_t *columns, const RowShape *end, const RowShape *opening,
    int64_t opening_count, const int64_t *opening_rows, const uint64_t *opening_values, uint8_t *data
) {
    uint8_t *to = data;
    for (int64_t event = block->low, row = block->first, opened = 0; event < block->high; event++) {
        if (row == block->stop || block->begin[row] != event) {
            memcpy(to, end->packet, (size_t)end->width);
            write_varint(to + end->delta_at, block->delta[event], end->delta_width);
            to += end->width;
            continue;
        }
        if (opened < opening_count && opening_rows[opened] == row) {
            memcpy(to, opening->packet, (size_t)opening->width);
            write_varint(to + opening->delta_at, opening_values[opened++], opening->delta_width);
            to += opening->width;
        }
        const RowShape *shape = &shapes[block->shape_of[row - block->first]];
        memcpy(to, shape->packet, (size_t)shape->width);
        write_varint(to + shape->delta_at, block->delta[event], shape->delta_width);
        for (int64_t at = shape->first_column; at < shape->stop_column; at++) {
            const int64_t *column = &columns[3 * at];
            const RowField *field = &block->fields[column[0]];
            uint64_t value = load_value(field, row);
            if (field->kind == RAW) memcpy(to + column[1], &value, sizeof value);
            else write_varint(to + column[1], value, column[2]);
        }
        to += shape->width;
        row++;
    }
    return to - data;
}

/* Number the codes of columns 1, 2, ... in order of appearance, each column from `after` of it on; 0 stays 0.
   codes: of each column, addresses. rows: of the codes. room: for codes of a column in `used`. numbers: receives those of each row, column by column.
   used: receives the code of each number, likewise. number_of: a table of zeros by code, which is left as it was. counts: receives
   the distinct codes of each column; those of a group are numbered on. Return 1 where a code is above `most`. */
API int64_t core_number_columns(
    int64_t count, const int64_t *rows, int64_t column_count, int64_t room, uint32_t most, const uint32_t *const *codes,
    const int64_t *groups, uint32_t *numbers, uint32_t *used, uint32_t *number_of, int64_t *counts
) {
    for (int64_t column = 0; column < column_count; column++) {
        uint32_t *own = numbers + column * count, *own_used = used + column * room, before = 0, distinct = 0;
        for (int64_t other = 0; other < column; other++)
            if (groups[other] == groups[column]) before += (uint32_t)counts[other];
        for (int64_t row = 0; row < count; row++) {
            uint32_t code = codes[column][rows ? rows[row] : row];
            if (code > most) return 1;
            if (code && !number_of[code]) {
                own_used[distinct++] = code;
                number_of[code] = before + distinct;
            }
            own[row] = number_of[code];
        }
        for (uint32_t at = 0; at < distinct; at++) number_of[own_used[at]] = 0;
        counts[column] = distinct;
    }
    return 0;
}

/* Write records of one width, each with a tail of bytes behind it.
   tails: of all records, one after the other. */
API int64_t core_join_tails(
    int64_t count, int64_t width, const uint8_t *records, const int64_t *lengths, const uint8_t *tails, uint8_t *data
) {
    for (int64_t row = 0; row < count; row++) {
        memcpy(data, records + row * width, (size_t)width);
        memcpy(data + width, tails, (size_t)lengths[row]);
        data += width + lengths[row];
        tails += lengths[row];
    }
    return 0;
}

/* ---- Rows of bytes: numbers of variable length, big-endian integers and texts at positions of each row. ---- */

/* Read a number of seven bits a byte, most significant first, of at most nine bytes, the last of which has eight bits.
   Return its length; 0 where it does not end before `stop`. */
static inline int64_t read_number(const uint8_t *at, const uint8_t *stop, int64_t *value) {
    uint64_t number = 0;
    for (int64_t length = 1; length <= 9 && at < stop; length++) {
        uint8_t byte = *at++;
        number = length == 9 ? number << 8 | byte : number << 7 | (byte & 0x7F);
        if (byte < 0x80 || length == 9) {
            *value = (int64_t)number;
            return length;
        }
    }
    return 0;
}

/* Read `width` successive numbers from each position on: of the first of all rows, then of the second, ...; ends: receives the
   positions after them. Return 1 where a position is not in the `size` bytes, or a number does not end there. */
API int64_t core_read_numbers(
    int64_t size, const uint8_t *bytes, int64_t count, const int64_t *at, int64_t width, int64_t *values, int64_t *ends
) {
    for (int64_t row = 0; row < count; row++) {
        int64_t position = at[row];
        for (int64_t place = row; place < width * count; place += count) {
            if (position < 0 || position >= size) return 1;
            if (bytes[position] < 0x80) values[place] = bytes[position++];
            else {
                int64_t length = read_number(bytes + position, bytes + size, &values[place]);
                if (!length) return 1;
                position += length;
            }
            ends[place] = position;
        }
    }
    return 0;
}

/* Read `width` successive numbers, which fill the bytes from `at` to `end`. Return 1 where they do not, or one is too large. */
static inline int64_t read_row(const uint8_t *at, const uint8_t *end, int64_t width, int32_t *values) {
    for (int64_t column = 0; column < width; column++) {
        int64_t value = 0;
        if (at < end && *at < 0x80) value = *at++;
        else {
            int64_t length = read_number(at, end, &value);
            if (!length || value < 0 || value > INT32_MAX) return 1;
            at += length;
        }
        values[column] = (int32_t)value;
    }
    return at != end;
}

/* Read `width` successive numbers of each row, which fill `[start, stop)` of the bytes. Return 1 where they do not, where a
   row is not in the `size` bytes, or a number is too large. */
API int64_t core_read_number_rows(
    int64_t size, const uint8_t *bytes, int64_t count, const int64_t *start, const int64_t *stop, int64_t width,
    int32_t *values
) {
    for (int64_t row = 0; row < count; row++, values += width) {
        if (start[row] < 0 || start[row] > stop[row] || stop[row] > size) return 1;
        if (read_row(bytes + start[row], bytes + stop[row], width, values)) return 1;
    }
    return 0;
}

/* Read big-endian numbers of 16 bits, `counts[run]` from `first[run]` on, and add `base[run]` to each. Return 1 where a run is
   not in the `size` bytes, there are other than `total` numbers, or one is not in `[least[run], most]`. */
API int64_t core_read_runs(
    int64_t size, const uint8_t *bytes, int64_t run_count, const int64_t *first, const int64_t *counts,
    const int64_t *base, const int64_t *least, int64_t most, int64_t total, int64_t *values
) {
    for (int64_t run = 0; run < run_count; run++) {
        int64_t length = counts[run];
        if (length < 0 || length > total || length > size / 2) return 1;
        if (first[run] < 0 || first[run] > size - 2 * length) return 1;
        const uint8_t *at = bytes + first[run];
        for (int64_t place = 0; place < length; place++, at += 2) {
            int64_t number = (int64_t)at[0] << 8 | at[1];
            if (number < least[run] || number > most) return 1;
            *values++ = base[run] + number;
        }
        total -= length;
    }
    return total != 0;
}

typedef struct {
    int64_t position; /* of the column, ascending */
    int64_t bits;     /* of its integers: 32 or 64; 0: texts */
    void *values;     /* int32_t, int64_t; of texts int64_t, their first bytes */
    void *others;     /* uint8_t, zeros that become 1 for null; of texts int64_t, their lengths */
    int64_t nulls;    /* receives their number */
    int64_t code;     /* in the row before */
    int64_t offset;   /* of its value in the row before */
} Field; /* a row of seven numbers of 64 bits */

/* Return the big-endian word of eight bytes. */
static inline uint64_t load_word(const uint8_t *at) {
    return (uint64_t)at[0] << 56 | (uint64_t)at[1] << 48 | (uint64_t)at[2] << 40 | (uint64_t)at[3] << 32 |
           (uint64_t)at[4] << 24 | (uint64_t)at[5] << 16 | (uint64_t)at[6] << 8 | at[7];
}

#define BEYOND ((int64_t)1 << 40)

/* Bytes of a field by its code below 12, and of the word that begins at an integer: how far it is shifted, and which of its
   bits count. */
static const uint8_t size_of[12] = {0, 1, 2, 3, 4, 6, 8, 8};
static const uint8_t shift_of[10] = {0, 56, 48, 40, 32, 16, 0};
static const int64_t mask_of[10] = {0, -1, -1, -1, -1, -1, -1};

/* Return the bytes of a field; a number beyond all rows where there is no such code. */
static inline int64_t measure_field(uint32_t code) {
    return code < 10 ? size_of[code] : code < 12 ? BEYOND : (code - 12) >> 1;
}

/* Find where the fields of a row with these codes lie; total: receives the bytes of all its fields, needed: up to the end of
   the last of `fields`. Return 1 where a code is none, or a field is not of its kind. */
static inline int64_t place_fields(
    int64_t width, const int32_t *codes, int64_t field_count, Field *fields, int64_t *total, int64_t *needed
) {
    int64_t at = 0, column = 0;
    *needed = 0;
    for (Field *field = fields; field < fields + field_count; field++) {
        for (; column < field->position; column++) at += measure_field((uint32_t)codes[column]);
        uint32_t code = (uint32_t)codes[column];
        if (field->bits ? code > 9 || code == 7 || (field->bits == 32 && size_of[code] > 4) : code && code < 12) return 1;
        field->code = code;
        field->offset = at;
        *needed = at + measure_field(code);
    }
    for (; column < width; column++) at += measure_field((uint32_t)codes[column]);
    *total = at;
    return at >= BEYOND;
}

/* Read values of rows of fields, which lie one after the other in `[start, start + sizes)` of the bytes; only the first
   `kept` bytes of a row are there. The bytes end with 8 that belong to no row. Numbers in `[header, start)` are the codes of all
   `width` fields: 0 null, 1 to 6 integers, 8 and 9 the integers 0 and 1, from 12 on texts; 7 is eight bytes of another kind.
   codes: memory for those of a row. Return 1 where a header has other numbers, fields do not fill their row or are not in the
   bytes, or a value is not of its kind. */
API int64_t core_read_fields(
    int64_t size, const uint8_t *bytes, int64_t count, const int64_t *header, const int64_t *start, const int64_t *kept,
    const int64_t *sizes, int64_t width, int32_t *codes, int64_t field_count, Field *fields
) {
    const uint8_t *known = NULL; /* the header before: most rows have the same one, and its fields lie alike */
    int64_t known_length = -1, total = 0, needed = 0;
    for (int64_t row = 0; row < count; row++) {
        if (header[row] < 0 || header[row] > start[row]) return 1;
        if (kept[row] < 0 || kept[row] > size - 8 || start[row] > size - 8 - kept[row]) return 1;
        const uint8_t *begin = bytes + start[row], *head = bytes + header[row];
        int64_t length = begin - head;
        if (length != known_length || memcmp(head, known, (size_t)length)) {
            if (read_row(head, begin, width, codes)) return 1;
            if (place_fields(width, codes, field_count, fields, &total, &needed)) return 1;
            known = head, known_length = length;
        }
        if (needed > kept[row] || total != sizes[row]) return 1;
        for (Field *field = fields; field < fields + field_count; field++) {
            int64_t code = field->code;
            if (field->bits == 0) {
                ((int64_t *)field->values)[row] = start[row] + field->offset;
                ((int64_t *)field->others)[row] = code ? (code - 12) >> 1 : 0;
                field->nulls += code < 14;
                continue;
            }
            int64_t word = (int64_t)load_word(begin + field->offset);
            int64_t value = (word >> shift_of[code] & mask_of[code]) | (code == 9);
            if (field->bits == 64) ((int64_t *)field->values)[row] = value;
            else ((int32_t *)field->values)[row] = (int32_t)value;
            if (!code) {
                ((uint8_t *)field->others)[row] = 1;
                field->nulls++;
            }
        }
    }
    return 0;
}

/* Check the codes of rows of fields as in `core_read_fields`. allowed: of each field, the sum of the kinds that
   it may have: 1 null, 2 integers, 4 eight bytes of another kind, 8 bytes (even codes), 16 texts (odd codes). Return 1 where
   fields do not fill their row, or a field is of another kind. */
API int64_t core_check_fields(
    int64_t count, int64_t width, const int32_t *codes, const uint8_t *allowed, const int64_t *sizes
) {
    static const uint8_t kind_of[12] = {1, 2, 2, 2, 2, 2, 2, 4, 2, 2};
    for (int64_t row = 0; row < count; row++, codes += width) {
        int64_t at = 0;
        for (int64_t column = 0; column < width; column++) {
            uint32_t code = (uint32_t)codes[column];
            if (!((code < 12 ? kind_of[code] : code & 1 ? 16 : 8) & allowed[column])) return 1;
            at += measure_field(code);
        }
        if (at != sizes[row]) return 1;
    }
    return 0;
}

/* Join slices of bytes, one after the other. Return 1 where one is not in the `size` bytes, or they are more than `room`. */
API int64_t core_join_slices(
    int64_t size, const uint8_t *bytes, int64_t count, const int64_t *start, const int64_t *lengths, int64_t room,
    uint8_t *joined
) {
    for (int64_t row = 0, at = 0; row < count; at += lengths[row++]) {
        int64_t length = lengths[row];
        if (start[row] < 0 || length < 0 || length > size || start[row] > size - length || length > room - at) return 1;
        memcpy(joined + at, bytes + start[row], (size_t)length);
    }
    return 0;
}

/* Hash bytes, eight at a time. */
static uint64_t hash_bytes(const uint8_t *at, int64_t length) {
    uint64_t hash = (uint64_t)length, word;
    for (; length >= 8; at += 8, length -= 8) {
        memcpy(&word, at, 8);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    word = 0;
    memcpy(&word, at, (size_t)length);
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

/* Number slices of bytes 1, 2, ... in order of appearance, equal ones alike; one without bytes has number 0. first_row: of each
   number from 1 on. Return 1 where a slice is not in the `size` bytes. */
API int64_t core_number_slices(
    int64_t size, const uint8_t *bytes, int64_t count, const int64_t *start, const int64_t *lengths,
    uint32_t *number_of, int64_t *first_row, int64_t *found
) {
    uint64_t capacity = 16, slices = 0;
    for (int64_t row = 0; row < count; row++) slices += lengths[row] != 0;
    while (capacity < 2 * slices) capacity *= 2;
    uint64_t *table = allocate_zeros((int64_t)capacity, sizeof(uint64_t)); /* half of the hash, and the number; 0: free */
    *found = 0;
    if (!table) return -1;
    int64_t result = 0;
    for (int64_t row = 0; row < count && !result; row++) {
        int64_t length = lengths[row];
        if (length < 0 || length > size || start[row] < 0 || start[row] > size - length) result = 1;
        else if (!length) number_of[row] = 0;
        else {
            uint64_t hash = hash_bytes(bytes + start[row], length), at = hash & (capacity - 1);
            for (;; at = (at + 1) & (capacity - 1)) {
                if (!table[at]) {
                    first_row[(*found)++] = row;
                    table[at] = (hash & 0xFFFFFFFF00000000u) | (uint64_t)*found;
                    break;
                }
                if ((table[at] ^ hash) >> 32) continue;
                int64_t other = first_row[(uint32_t)table[at] - 1];
                if (lengths[other] == length && !memcmp(bytes + start[other], bytes + start[row], (size_t)length)) break;
            }
            number_of[row] = (uint32_t)table[at];
        }
    }
    release(table);
    return result;
}

/* ---- Columns of packed frames (`byte_planes.py`, `packed_frames.py`). ---- */

typedef struct {
    int64_t place;     /* of the column in the result */
    int64_t has_nulls; /* a mask precedes the planes */
    int64_t method;    /* -1: all rows are null */
    int64_t width, length;
    int64_t other; /* place of the column that TO_OTHER and BY_OTHER refer to */
} ColumnCode;

static inline uint64_t load_planes(const uint8_t *planes, int64_t width, int64_t length, int64_t at) {
    uint64_t word = 0;
    for (int64_t plane = 0; plane < width; plane++) word |= (uint64_t)planes[plane * length + at] << 8 * plane;
    return word;
}

/* Restore a column from its planes, 0 for null. Return 1 where the planes contradict its rows or the other column. */
static int restore_column(
    const ColumnCode *code, const uint8_t *planes, int64_t rows, const uint8_t *valid, const uint64_t *other, uint64_t *words
) {
    int64_t at = 0;
    uint64_t sum = 0;
    if (!code->has_nulls && code->method != BY_OTHER) {
        if (code->length != rows) return 1;
        decode_stored(code->method, code->width, rows, planes, other, words);
        return 0;
    }
    for (int64_t row = 0; row < rows; row++) {
        if (!valid[row]) {
            words[row] = 0;
            continue;
        }
        if (code->method == BY_OTHER) {
            if (other[row] >= (uint64_t)code->length) return 1;
            words[row] = load_planes(planes, code->width, code->length, (int64_t)other[row]);
            continue;
        }
        if (at == code->length) return 1;
        uint64_t word = load_planes(planes, code->width, code->length, at++);
        if (code->method != PLAIN) word = from_magnitude(word);
        if (code->method == DIFFERENCES) word = sum += word;
        if (code->method == TO_OTHER) word += other[row];
        words[row] = word;
    }
    return code->method != BY_OTHER && at != code->length;
}

/* Restore the columns of a frame, which lie one after the other in `size` bytes; column `place` begins at `place * stride` of
   `words` and of `valid`. most: receives the greatest word of each column as a signed number, -1 without one. Return the
   number of bytes that they have, -1 where these contradict the codes. */
API int64_t core_restore_columns(
    int64_t size, const uint8_t *bytes, int64_t rows, int64_t count, const ColumnCode *codes, int64_t stride,
    uint64_t *words, uint8_t *valid, int64_t *most
) {
    int64_t at = 0;
    for (int64_t place = 0; place < count; place++) most[place] = -1;
    for (const ColumnCode *code = codes; code < codes + count; code++) {
        if (code->place < 0 || code->place >= count) return -1;
        uint64_t *own = words + code->place * stride;
        uint8_t *is_valid = valid + code->place * stride;
        if (code->method < 0) {
            memset(own, 0, (size_t)rows * sizeof *own);
            memset(is_valid, 0, (size_t)rows);
            continue;
        }
        if (code->has_nulls) {
            if (size - at < (rows + 7) / 8) return -1;
            for (int64_t row = 0; row < rows; row++) is_valid[row] = bytes[at + row / 8] >> (7 - row % 8) & 1;
            at += (rows + 7) / 8;
        } else memset(is_valid, 1, (size_t)rows);
        const uint64_t *other = NULL;
        if (code->method >= TO_OTHER) {
            int is_earlier = 0;
            for (const ColumnCode *before = codes; before < code; before++)
                is_earlier |= before->place == code->other && before->method >= 0;
            if (!is_earlier) return -1;
            other = words + code->other * stride;
        }
        if (code->width < 0 || code->width > 8 || code->length < 0) return -1;
        if (code->width && code->length > (size - at) / code->width) return -1;
        if (restore_column(code, bytes + at, rows, is_valid, other, own)) return -1;
        at += code->width * code->length;
        int64_t greatest = -1;
        for (int64_t row = 0; row < rows; row++) {
            int64_t word = own[row] > INT64_MAX ? INT64_MAX : (int64_t)own[row];
            word = is_valid[row] ? word : -1;
            greatest = word > greatest ? word : greatest;
        }
        most[code->place] = greatest;
    }
    return at;
}
