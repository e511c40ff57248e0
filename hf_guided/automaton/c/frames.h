/* What the loops that read texts by a network share: see frames.c. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "public.h"

enum { MOST_FRAMES = 1024, MOST_DEPTH = 10000 }; /* of one text, as in network.py; and of merged frames */
enum { UNREACHABLE = 1 << 29 };                  /* the sum of two still fits */

/* What a function returns instead of a set, or of how many there are. */
enum {
    NO_MEMORY = -1,
    TOO_MANY = -2,
    NEEDS_COMPONENT = -3,
    NEEDS_TABLE = -4,
    REFUSED = -5,
    NEEDS_EXITS = -6,
    NEEDS_STAY = -7,
    TOO_LONG = -8, /* more work than allowed */
    NEAR_LIMIT = -9, /* it is not known whether the limit refuses a token */
    DOUBTFUL = -10, /* see frame_names.c */
    FAILED = -11    /* an answer of Python's */
};

enum { MOST_WORK = 1 << 30 }; /* frames looked at for one mask, or one look at a set: a second or two */

enum { BEGIN = -1, BEGIN_REQUIRED = -2, END = -3, MORE = -4, CLOSE = -5 }; /* callees, as in ``Mark`` of rtn.py */

enum { EMPTY_TEXT = 1, NEW_TEXT = 2, ABOVE = -1 }; /* texts: see frame_names.c */
enum { OUTERMOST = EMPTY_TEXT }; /* what `count` of an owner is, where nothing else is open: around an item is a bracket */

enum { OBJECT = 1, ARRAY = 2 };                  /* registers: of names, and of different items */
enum { ORDERED = 1, SPELLED = 2 };               /* see `compared` */

typedef struct {
    int64_t child, byte, token_start, token_ids; /* addresses of a TokenTrie's arrays */
    int64_t longest;                             /* bytes of a token */
    int64_t letters;                             /* address: see component_exits.c */
    int64_t below;                               /* address: (nodes) how many nodes are below each */
    int64_t parent, node_of;                     /* addresses: of each node; and (size) where each token ends, or 0 */
    int64_t size;                                /* tokens */
    int64_t named, named_count;                  /* address and number of the tokens with a whole name of an object */
} Trie;

/* Rows of exits: bytes to the end of the component; the move; the state after a space, or 0; and whether the string that
 * is counted has not ended; of an owner, whether the way out has another name or item. */
enum { SIZE, MOVE, SPACE, COUNTS };
enum { ENDS = -1, CALLS = 256 }; /* moves that are no bytes: the component ends; and from here on its calls */

/* Asks Python, which answers by a function of item_keys.c or frame_items.c.
 *
 * component  of the array, for `Choices` after the items of a set; or -1 - c, for the states of component c from which
 *            infinitely many values remain
 * number     the set; or a text whose key is asked, where component is `KEY`
 * address    of the set's members, or of the bytes of the text
 * count      of these
 *
 * Returns 0 or more; FAILED where Python raises.
 */
typedef int64_t (*Ask)(int64_t component, int64_t number, int64_t address, int64_t count);
enum { KEY = 1 << 30 };

typedef struct {
    const int32_t *table;      /* (states, classes) */
    const uint8_t *class_of;   /* (256) */
    const uint8_t *accepting;  /* (states) */
    const int64_t *call_begin; /* (states + 1) */
    const int32_t *calls;      /* which of the callees, and the state after it */
    const uint8_t *leaves;     /* (states) whether anything but bytes may come */
    const int64_t *callees;
    int64_t classes, states, start;
    const uint8_t *begins;     /* (states) whether a character of the counted string may begin; NULL if none is counted */
    const int32_t *owed;       /* (states) characters that have to begin before the string may end */
    const int64_t *characters; /* (nodes) how many there are on the way to each node of the vocabulary */
    int64_t most_owed;
    int64_t low, high;    /* how many characters there may be; `high` -1 is no bound */
    const int32_t *exits; /* (4, states) see component_exits.c; NULL where they are not known yet */
    int64_t most_size;    /* of the sizes among them that are reachable */
    int64_t is_owner;     /* OBJECT or ARRAY: what its register has; of these `low` and `high` say how many there may be */
    const uint8_t *names; /* one after the other: first those that have to come, then enough others */
    const int64_t *name_ends; /* (name_count) of each among them */
    int64_t name_count, required;
    int64_t most_names; /* how many different names there are; 2 ** 31 where there are as many or more */
    const int32_t *legs; /* (2, name_count) bytes of a member, up to where another begins, and to the object's end;
                            NULL where names have an order, which the automaton knows, and of arrays */
    const int32_t *to_begin; /* (4, states) as `exits`, to where a name begins */
    int32_t *texts; /* (name_count) of the names; of the machine */
    const uint8_t *unbounded; /* (states) whether infinitely many values remain; NULL where it is not known yet */
    int64_t compared; /* of an array: ORDERED where members of equal items are in the same order, and SPELLED where each
                         string has one text */
} Component;

/* What may come in an array after the items of a set. */
typedef struct {
    int32_t contested; /* the set of the keys that an item must not have: those entered; or which others may need */
    int32_t known;     /* these, and those of all items on ways out */
    int32_t target;    /* the text of the next item on the way to the end; 0 where none is known */
    int64_t longest;   /* bytes of each item on that way, at most; UNREACHABLE where none is known */
    uint8_t may_end, may_go_on; /* whether enough others can come after these items; and one more */
} Choices;

/* The nodes where tokens end that stay in a component, those with the same state together. */
typedef struct {
    const int32_t *nodes;
    const int32_t *states; /* (groups) */
    const int64_t *ends;   /* (groups) of each among the nodes */
    const int64_t *words;  /* (groups) the address of a mask of its tokens, or 0 where they are few */
    int64_t groups;        /* -1 where they are not known yet */
} Stay;

typedef struct {
    const uint32_t *words;    /* the tokens that stay, or NULL where they are those of `nodes` */
    const int32_t *nodes;
    const int64_t *left;      /* (leaving) addresses: the nodes where others leave in a state */
    const int64_t *left_count; /* (leaving) how many those are */
    const int64_t *left_in;    /* (leaving) the state */
    const uint32_t *at_most;  /* (most, words) with `words` the tokens that stay and have at most 0, 1 ... characters,
                                 owed ones included; the last row has all where none are owed; or NULL */
    int64_t node_count, leaving, most;
    Stay stay;
    void *owned; /* the memory to free with the table; NULL where Python owns it */
} Table;

typedef struct {
    int32_t component, state, below; /* `below` is a set, 0 for the root's frame */
    int32_t count; /* characters; of an owner 0, or where its name or item is open, OUTERMOST or the text around that */
    int32_t names; /* the set of the texts that are names of an object already, or of the keys of an array's items */
    int32_t text;  /* that of what is open, the innermost; 0 where nothing is, ABOVE where the frame above has it */
    int32_t is_productive; /* whether all that is open can end as something new; -1 where not known */
    int32_t way;    /* see `next_on_way`; -1 where not known */
    int32_t is_seen; /* in a search that is under way */
    int32_t needed; /* one more than the tokens to the end of the text; 0 is unknown, -1 is being counted */
} Frame;

typedef struct {
    uint64_t bytes[4]; /* those that may come; once `closed` is known */
    int64_t begin;
    int32_t count, closed, beyond; /* sets: with all that calls and ends lead to; -1 where not known */
    int32_t merged;                /* the set with one instead of frames that are alike; -1 where not known */
    int32_t size, needed;          /* bytes, and tokens, to the end of the text; -1 where not known */
    int32_t same_mask;             /* see `same_mask`; -1 where not known */
    int32_t enough;                /* tokens left with which no token of the mask is refused; INT32_MAX where not known */
    int8_t completed, is_large;    /* whether many tokens may come */
    int8_t is_doubtful;            /* whether its mask cannot stand for others: see frame_names.c */
} Set;

typedef struct {
    uint64_t key;
    int32_t value;
} Pair;

/* From numbers other than 0 to numbers. */
typedef struct {
    Pair *pairs;
    int64_t used, room;
} Map;

typedef struct {
    int32_t by, frame; /* a byte or a node, and the frame there */
} Step;

typedef struct {
    int32_t before, depth; /* the text without its last byte; and how many bytes it has */
    int32_t byte, key;     /* its last byte; and the text that is the key of the value; 0 where not known */
    int64_t flat;          /* of keys: where their bytes begin in `keys` */
} Written;

typedef struct {
    int32_t node, frame; /* a node of the trie, and the frame there */
} Watched;

typedef struct {
    int64_t cost;
    int32_t depth, at; /* `at` is its place among those seen */
} Ahead;

typedef struct {
    const int64_t *child, *token_start, *token_ids, *parent, *node_of;
    const uint8_t *byte;
    int64_t longest, size;
    uint8_t *text; /* (longest) of a token */
    int64_t work;  /* frames that may still be looked at in this call */
    const int32_t *letters; /* all bytes, those that are preferred first, and then -1 */
    const int32_t *below;
    Component *components;
    Table *tables;
    Frame *frames;
    Set *sets;
    int32_t *members;  /* of the sets */
    int32_t *reached, *todo;
    int32_t *frame_buckets, *set_buckets;
    int64_t component_count, component_room, table_count, table_room, frame_count, frame_room, set_count, set_room;
    int64_t member_count, member_room, reached_room, todo_room, frame_bucket_room, set_bucket_room;
    Map moves, table_of, text_after;
    Written *written;  /* texts */
    Watched *watched;  /* see frame_masks.c */
    int64_t written_count, written_room, watched_count, watched_room, deepest; /* bytes of the longest text */
    Step *steps, *walk;        /* of exits */
    int32_t *leads, *counting; /* likewise */
    Step *seen;                /* of a search: `by` is the place of the one before; see frame_items.c */
    Ahead *ahead;
    int64_t seen_room, ahead_room;
    Ask ask;
    const int64_t *named;
    int64_t named_count;
    uint8_t *open, *item, *keys; /* the bytes of what is open, the last first; of an item; and of all keys */
    int64_t open_room, item_room, keys_count, keys_room;
    int32_t innermost; /* text: see `each_owner` */
    Choices *choices;
    Map choices_of;
    int64_t choices_count, choices_room;
    int8_t has_items, compares_members; /* whether an array has different items; and with members in any order */
    int8_t is_least;                    /* see `hf_guided_machine_new` */
    int64_t derived_bytes; /* of tables that derived_tables.c has made */
    int64_t few;           /* nodes that are found one by one, rather than by a table: see hf_guided_machine_mask */
    int64_t step_count, step_room, walk_room, lead_room, counting_room;
    int64_t missing; /* a component, or component << 32 | state of what stays, or the key of a table less 1 */
} Machine;

/* How many tokens may follow a token of a mask, the one that ends the text included. */
typedef struct {
    int64_t left; /* how many */
    int64_t most; /* written: with as many left no token of the mask would be refused; at least what it was */
} Limit;

static inline int has_room(void *data, int64_t *room, int64_t needed, size_t each)
{
    void **array = data, *moved;
    int64_t larger = *room ? *room : 64;
    if (needed <= *room)
        return 1;
    while (larger < needed)
        larger *= 2;
    if (!(moved = realloc(*array, (size_t)larger * each)))
        return 0;
    *array = moved;
    *room = larger;
    return 1;
}

static inline int32_t *map_find(const Map *map, uint64_t key)
{
    uint64_t at;
    if (!map->room)
        return NULL;
    for (at = mixed(key) & (uint64_t)(map->room - 1); map->pairs[at].key; at = (at + 1) & (uint64_t)(map->room - 1))
        if (map->pairs[at].key == key)
            return &map->pairs[at].value;
    return NULL;
}

/* That of the table of what tokens do from a node of the trie on, where they are in a state of a component.
 *
 * There are fewer components and states than max_states of options.NETWORK, and fewer nodes than bytes of tokens.
 */
static inline uint64_t table_key(int64_t component, int64_t state, int64_t node)
{
    return ((uint64_t)component << 44 | (uint64_t)state << 24 | (uint64_t)node) + 1;
}

static inline int has_token(const Machine *m, int64_t node)
{
    return m->token_start[node] < m->token_start[node + 1];
}

static inline int is_space(uint8_t byte)
{
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

/* Whether a frame is inside a string that is counted. */
static inline int is_counting(const Machine *m, const Frame *frame)
{
    const uint8_t *begins = m->components[frame->component].begins;
    return begins && (frame->count || begins[frame->state]);
}

/* In frames.c. */
int64_t hf_guided_machine_bytes(const Machine *m);
int32_t frame_of(Machine *m, Frame frame);
int32_t set_of(Machine *m, int32_t *items, int64_t count);
int32_t entered(Machine *m, int32_t component, int32_t below, int32_t text);
int32_t called(Machine *m, Frame frame, const int32_t *call);
int32_t returned(Machine *m, const Frame *frame, int32_t number);
int32_t moved_frame(Machine *m, Frame frame, int32_t state, uint8_t byte);
int map_put(Map *map, uint64_t key, int32_t value);
int64_t counted(const Component *component, const Frame *frame, int32_t state);
int32_t closed(Machine *m, int32_t set);
int32_t after(Machine *m, int32_t set, uint8_t byte);

/* Adds the table that was missing, whose arrays have to live as long. Returns 0, or that there is no memory. */
int64_t hf_guided_machine_table(Machine *m, const Table *table);

/* In derived_tables.c. */
int64_t derive_table(Machine *m, const Frame *frame, int64_t word_count, int32_t *scratch);

/* In token_walk.c. */
int64_t hf_guided_body(const uint8_t *class_of, const int32_t *table, int64_t classes, int64_t state);

/* In frame_names.c. */
int32_t text_plus(Machine *m, int32_t text, uint8_t byte);
int is_within_text(const Machine *m, int32_t text, int32_t begin);
int32_t marked(Machine *m, Frame frame, int32_t mark);
int64_t take_names(Machine *m, Component *component);
int64_t names_to_come(const Machine *m, const Component *c, int32_t names);
int64_t names_that_matter(const Machine *m, const Component *c, int32_t names);
int32_t target_name(Machine *m, const Component *c, int32_t names, int32_t text, int32_t from);
int64_t member_bytes(Machine *m, const Component *c, int32_t names);
int has_name(const Machine *m, int32_t names, int32_t text);
int32_t names_with(Machine *m, int32_t names, int32_t text);

/* In item_keys.c. */
int32_t key_of(Machine *m, int32_t text);
int32_t choices_after(Machine *m, int32_t component, int32_t items);
int may_become(const Machine *m, const uint8_t *text, int64_t length, int32_t key_text, int64_t compared);

/* In frame_items.c.
 *
 * An owner is given with what is open in it: `length` bytes, of which its own text is the innermost, see `each_owner`.
 */
typedef int64_t (*Visit)(Machine *m, Frame owner, int64_t length, void *data);
int64_t each_owner(Machine *m, Frame frame, Visit visit, void *data);
int is_beginning(const Machine *m, int32_t text, int64_t length);
const uint8_t *open_item(Machine *m, int64_t length, int64_t more);
int64_t opened(Machine *m, int64_t length, int32_t text);
int64_t is_productive(Machine *m, int32_t number);
int64_t is_doubtful(Machine *m, Frame frame);
int64_t is_watched(Machine *m, Frame frame);
int32_t next_on_way(Machine *m, int32_t number);
int64_t find_watched(Machine *m, Frame frame, int32_t node);

/* In frame_steps.c. */
int32_t after_token(Machine *m, int32_t set, int64_t token);

/* In frame_masks.c. */
int32_t same_mask(Machine *m, int32_t set);

/* In frame_exits.c. */
int32_t child_by(const Machine *m, int32_t node, int32_t byte);
int32_t set_size(Machine *m, int32_t set);
int64_t least_size(Machine *m, Frame frame);
int32_t owing(const Component *c, const Frame *frame);
int32_t frame_needed(Machine *m, int32_t frame);
int32_t set_needed(Machine *m, int32_t set);
