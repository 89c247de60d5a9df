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

API int64_t core_version(void) { return 21; }

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
