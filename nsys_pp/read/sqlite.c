/* Steps a statement of SQLite and fills columns: integers, reals, or texts as codes of distinct ones.

   The functions of SQLite come from the library that Python has loaded (`sqlite.py`), so no header and no second copy of
   SQLite is needed. Arrays of rows are the caller's, with room for `room` rows; distinct texts are kept here until
   `free_texts`. The definition is `PlainConnection` in `sqlite.py`, over Python's own module. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { INTEGER, REAL, TEXT };                        /* kinds of columns */
enum { STORED_INTEGER = 1, STORED_NULL = 5 };        /* SQLITE_INTEGER, SQLITE_NULL */
enum { SQLITE_NOMEM = 7, SQLITE_ROW = 100 };

typedef struct {
  int (*step)(void *);
  void *(*value)(void *, int);
  int (*type)(void *);
  int64_t (*integer)(void *);
  double (*real)(void *);
  const unsigned char *(*text)(void *);
  int (*bytes)(void *);
} Sqlite;

typedef struct {
  int64_t kind;
  void *values;      /* int64_t, double, or uint32_t codes: 0 is null, and an empty text */
  uint8_t *is_null;  /* of integers and reals */
  int64_t nulls;     /* rows that are null */
  int64_t odd;       /* integers stored as something else */
  char *bytes;       /* of all distinct texts */
  int64_t size, bytes_room;
  int64_t *ends;     /* of the text of each code, from 1 on */
  int64_t count, ends_room;
  uint32_t *slots;   /* hash table of codes; a power of two */
  int64_t slot_count;
} Column;

#define EXPORT __attribute__((visibility("default")))

EXPORT int64_t column_size(void) { return sizeof(Column); }

/* Handler of progress: ends a query without budget. */
EXPORT int spend(int64_t *calls) { return --*calls < 0; }

EXPORT void free_texts(Column *column) {
  free(column->bytes);
  free(column->ends);
  free(column->slots);
  column->bytes = NULL, column->ends = NULL, column->slots = NULL;
  column->size = column->bytes_room = column->count = column->ends_room = column->slot_count = 0;
}

/* Of each process its own, so that no file can have texts that share a hash. */
EXPORT uint64_t secret[2];

static uint64_t hash(const unsigned char *text, int64_t size) {
  uint64_t sum = secret[0] ^ (uint64_t)size, word = 0;
  for (int64_t at = 0; at <= size; at += 8, word = 0) {
    memcpy(&word, text + at, (size_t)(size - at < 8 ? size - at : 8));
    __uint128_t product = (__uint128_t)(sum ^ word) * secret[1];
    sum = (uint64_t)product ^ (uint64_t)(product >> 64);
  }
  return sum;
}

static int64_t begin_of(const Column *column, uint32_t code) { return code > 1 ? column->ends[code - 2] : 0; }

/* Make room for one more text; 0 if there is no memory. */
static int grow(Column *column, int64_t size) {
  if (column->size + size > column->bytes_room) {
    int64_t room = 2 * (column->size + size) + 1024;
    char *bytes = realloc(column->bytes, (size_t)room);
    if (bytes == NULL) return 0;
    column->bytes = bytes, column->bytes_room = room;
  }
  if (column->count == column->ends_room) {
    int64_t room = 2 * column->count + 64;
    int64_t *ends = realloc(column->ends, (size_t)room * sizeof(int64_t));
    if (ends == NULL) return 0;
    column->ends = ends, column->ends_room = room;
  }
  if (2 * column->count >= column->slot_count) {
    int64_t count = column->slot_count ? 2 * column->slot_count : 128;
    uint32_t *slots = calloc((size_t)count, sizeof(uint32_t));
    if (slots == NULL) return 0;
    for (uint32_t code = 1; code <= column->count; code++) {
      int64_t begin = begin_of(column, code), end = column->ends[code - 1];
      uint64_t at = hash((unsigned char *)column->bytes + begin, end - begin) & (uint64_t)(count - 1);
      while (slots[at]) at = (at + 1) & (uint64_t)(count - 1);
      slots[at] = code;
    }
    free(column->slots);
    column->slots = slots, column->slot_count = count;
  }
  return 1;
}

/* Find the code of a text, or give it the next one; 0 if there is no memory. */
static uint32_t find_code(Column *column, const unsigned char *text, int64_t size) {
  if (column->count >= UINT32_MAX - 1 || !grow(column, size)) return 0;
  uint64_t mask = (uint64_t)column->slot_count - 1, at = hash(text, size) & mask;
  for (uint32_t code; (code = column->slots[at]) != 0; at = (at + 1) & mask) {
    int64_t begin = begin_of(column, code);
    if (column->ends[code - 1] - begin == size && !memcmp(column->bytes + begin, text, (size_t)size)) return code;
  }
  memcpy(column->bytes + column->size, text, (size_t)size);
  column->size += size;
  column->ends[column->count++] = column->size;
  return column->slots[at] = (uint32_t)column->count;
}

/* Read rows into the columns from row `*at` on, until there are `room`. Returns the status of the last step: SQLITE_ROW if
   there may be more rows, and `*at` is then `room`. */
EXPORT int64_t read_rows(const Sqlite *sqlite, void *statement, int64_t column_count, Column *columns, int64_t *at,
                         int64_t room) {
  int status = SQLITE_ROW;
  if (*at < 0) return SQLITE_NOMEM;
  while (*at < room && (status = sqlite->step(statement)) == SQLITE_ROW) {
    int64_t row = *at;
    for (int number = 0; number < column_count; number++) {
      Column *column = &columns[number];
      void *value = sqlite->value(statement, number);
      int type = sqlite->type(value);
      if (column->kind == TEXT) {
        uint32_t code = 0;
        if (type != STORED_NULL) {
          const unsigned char *text = sqlite->text(value);
          int64_t size = sqlite->bytes(value);
          if (text == NULL && size) return SQLITE_NOMEM;
          if (size && (code = find_code(column, text, size)) == 0) return SQLITE_NOMEM;
        }
        ((uint32_t *)column->values)[row] = code;
        column->nulls += code == 0;
        continue;
      }
      int is_null = type == STORED_NULL;
      column->is_null[row] = (uint8_t)is_null;
      column->nulls += is_null;
      if (column->kind == REAL) {
        ((double *)column->values)[row] = is_null ? 0 : sqlite->real(value);
      } else {
        column->odd += !is_null && type != STORED_INTEGER;
        ((int64_t *)column->values)[row] = is_null ? 0 : sqlite->integer(value);
      }
    }
    ++*at;
  }
  return status;
}
