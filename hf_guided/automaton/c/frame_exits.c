/* Finds the way from a frame to the end of the text.
 *
 * Each state of a component has one move on a shortest way to its end: see component_exits.c. So a frame has one way to
 * the end of the text, or one for each frame that it may return to. A token that lies along a way leads to a frame that
 * has the rest of it: counted along these ways, a text that needs some tokens has an allowed token after which it needs
 * one less.
 */
#include "frames.h"

enum { MOST_RUN = 64 };    /* bytes of a token of one character again and again */
enum { FRAME_WORK = 256 }; /* of counting from one frame, and of each look at what may come after it */

static int32_t exit_of(const Component *c, int row, int32_t state)
{
    return c->exits[row * c->states + state];
}

/* The exits by which a frame goes on: where names have to come, those to where the next one begins. */
static const int32_t *exits_of(Machine *m, const Frame *frame)
{
    const Component *c = m->components + frame->component;
    return c->legs && target_name(m, c, frame->names, 0, 0) >= 0 ? c->to_begin : c->exits;
}

/* Bytes to the end of the component of an object, or those that are still enough where its open name is in a frame above. */
static int64_t object_size(Machine *m, Frame frame)
{
    const Component *c = m->components + frame.component;
    const int32_t text = frame.count && frame.text > 0 ? frame.text : 0;
    const int32_t target = text && c->legs ? target_name(m, c, frame.names, text, 0) : -1;
    int64_t rest;
    if (target >= 0) {
        const int32_t names = names_with(m, frame.names, c->texts[target]);
        if (names < 0)
            return names;
        rest = member_bytes(m, c, names);
        return (rest ? c->legs[target] + rest : c->legs[c->name_count + target]) - m->written[text].depth;
    }
    if (c->legs && (rest = member_bytes(m, c, frame.names)))
        return rest + c->to_begin[SIZE * c->states + frame.state];
    rest = c->legs ? 0 : names_to_come(m, c, frame.names);
    /* The shortest name may be one that there is already. */
    rest += !frame.count && m->sets[frame.names].count && exit_of(c, COUNTS, frame.state);
    return rest * (c->most_size + m->deepest) + exit_of(c, SIZE, frame.state);
}

/* The same of an array, where that is known. */
static int64_t array_size(Machine *m, Frame frame)
{
    const Component *c = m->components + frame.component;
    const int64_t more = c->low - m->sets[frame.names].count, size = exit_of(c, SIZE, frame.state);
    const int64_t to_come = (!frame.count && exit_of(c, COUNTS, frame.state)) + (more > 0 ? more : 0);
    const int32_t at = to_come && !m->is_least ? choices_after(m, frame.component, frame.names) : 0;
    return at < 0 ? at : to_come && !m->is_least ? size + to_come * m->choices[at].longest : size;
}

/* Bytes to the end of a frame's component, about: as if nothing were there already that is to come. */
int64_t least_size(Machine *m, Frame frame)
{
    const Component *c = m->components + frame.component;
    return c->is_owner == OBJECT ? object_size(m, frame) : exit_of(c, SIZE, frame.state);
}

/* Bytes to the end of a frame's component; more where the shortest end of what is open is taken. */
static int64_t own_size(Machine *m, Frame frame)
{
    const Component *c = m->components + frame.component;
    int64_t size = c->is_owner == ARRAY ? array_size(m, frame) : least_size(m, frame), watched;
    if (size < 0 || size >= UNREACHABLE || m->is_least || (watched = is_watched(m, frame)) == 0)
        return size;
    if (watched < 0 || m->has_items)
        return watched < 0 ? watched : UNREACHABLE;
    return size + c->most_size + m->deepest;
}

static int has_exits(Machine *m, int32_t component)
{
    m->missing = component;
    return m->components[component].exits != NULL;
}

/* How many characters have to begin before the string that is counted may end. */
int32_t owing(const Component *c, const Frame *frame)
{
    return c->begins && exit_of(c, COUNTS, frame->state) && frame->count < c->low ? (int32_t)c->low - frame->count : 0;
}

static int lead(Machine *m, int64_t *count, int32_t frame)
{
    if (!has_room(&m->leads, &m->lead_room, *count + 1, sizeof *m->leads))
        return 0;
    m->leads[(*count)++] = frame;
    return 1;
}

/* Bytes that are enough to the end of a text that is in a set: UNREACHABLE if there is no way, or what is missing. */
int32_t set_size(Machine *m, int32_t set)
{
    int64_t count = 0;
    m->sets[0].size = 0; /* nothing is below the frame of the root */
    if (m->sets[set].size < 0 && !lead(m, &count, set))
        return NO_MEMORY;
    while (count) { /* texts are deeper than a stack */
        const int32_t here = m->leads[count - 1];
        const int64_t before = count;
        int32_t best = UNREACHABLE;
        for (int32_t i = 0; i < m->sets[here].count; i++) {
            const Frame *frame = m->frames + m->members[m->sets[here].begin + i];
            const Component *c = m->components + frame->component;
            const int32_t below = m->sets[frame->below].size;
            int64_t size;
            if (!has_exits(m, frame->component))
                return NEEDS_EXITS;
            if (below < 0 && !lead(m, &count, frame->below))
                return NO_MEMORY;
            if ((size = own_size(m, *frame)) < 0)
                return (int32_t)size;
            frame = m->frames + m->members[m->sets[here].begin + i];
            size = size + below < UNREACHABLE ? size + below + owing(c, frame) : UNREACHABLE;
            if (size < best)
                best = (int32_t)size;
        }
        if (count == before) {
            m->sets[here].size = best;
            count--;
        }
    }
    return m->sets[set].size;
}

static int step(Machine *m, int32_t byte, int32_t frame)
{
    if (!has_room(&m->steps, &m->step_room, m->step_count + 1, sizeof *m->steps))
        return 0;
    m->steps[m->step_count++] = (Step){byte, frame};
    return 1;
}

/* The frame after a byte on the way. */
static int32_t moved(Machine *m, Frame frame, int32_t byte)
{
    const Component *c = m->components + frame.component;
    return moved_frame(m, frame, c->table[c->classes * frame.state + c->class_of[byte]], (uint8_t)byte);
}

/* The character that is written as long as a string needs more; -1 where none is. */
static int32_t filler(const Machine *m, const Frame *frame)
{
    const Component *c = m->components + frame->component;
    if (!owing(c, frame) || !c->begins[frame->state] || c->owed[frame->state])
        return -1;
    for (const int32_t *letter = m->letters; *letter >= 0; letter++) {
        const int32_t to = c->table[c->classes * frame->state + c->class_of[*letter]];
        if (to && c->begins[to] && !c->owed[to])
            return *letter;
    }
    return -1;
}

static int lead_returned(Machine *m, int64_t *count, Frame frame)
{
    for (int32_t i = 0; i < m->sets[frame.below].count; i++) {
        const int32_t next = returned(m, &frame, m->members[m->sets[frame.below].begin + i]);
        if (next < 0 || !lead(m, count, next))
            return NO_MEMORY;
    }
    return 0;
}

/* What is to be written of a name or an item that has begun. */
typedef struct {
    Frame owner;
    int64_t written; /* bytes of it */
    int32_t text;    /* the whole */
} Target;

/* Notes the outermost item that begins as the one to come on the way out, or else the innermost owner. */
static int64_t note_target(Machine *m, Frame owner, int64_t length, void *data)
{
    Target *target = data;
    int32_t at, text;
    if (!target->owner.count)
        target->owner = owner;
    if (m->components[owner.component].is_owner != ARRAY)
        return 0;
    if ((at = choices_after(m, owner.component, owner.names)) < 0)
        return at;
    text = m->choices[at].target;
    if (text && is_beginning(m, text, length))
        *target = (Target){owner, length, text};
    return 0;
}

/* Follows the mark at the end of what is open in an owner, from all frames of a set where it comes.
 *
 * count  of `leads`, where these are added; or NULL
 *
 * Returns whether there are any, or what is missing.
 */
static int32_t find_ends(Machine *m, int32_t set, const Frame *owner, int64_t *count)
{
    const int32_t whole = closed(m, set);
    int32_t found = 0;
    for (int32_t i = 0; whole >= 0 && i < m->sets[whole].count; i++) {
        const Frame frame = m->frames[m->members[m->sets[whole].begin + i]];
        const Component *c = m->components + frame.component;
        if (frame.component != owner->component || frame.below != owner->below || !frame.count)
            continue;
        for (int64_t call = c->call_begin[frame.state]; call < c->call_begin[frame.state + 1]; call++) {
            const int32_t next = c->callees[c->calls[2 * call]] == END ? called(m, frame, c->calls + 2 * call) : REFUSED;
            if (next < 0 && next != REFUSED)
                return next;
            if (next >= 0 && count && !lead(m, count, next))
                return NO_MEMORY;
            found |= next >= 0;
            c = m->components + frame.component;
        }
    }
    return whole < 0 ? whole : found;
}

/* Goes on from a frame towards a name or an item: by a byte, or by the mark at its end.
 *
 * Returns 1, 0 where that is not the way, or what is missing.
 */
static int32_t towards(Machine *m, int32_t number, const Target *target, int64_t *count)
{
    const int64_t length = m->written[target->text].depth - target->written;
    uint8_t *rest = malloc((size_t)length + 1);
    int32_t set = number, text = target->text, found = 0, whole;
    if (!rest || (set = set_of(m, &set, 1)) < 0 || (whole = closed(m, set)) < 0) {
        free(rest);
        return !rest ? NO_MEMORY : set < 0 ? set : whole;
    }
    for (int64_t i = length; i-- > 0; text = m->written[text].before)
        rest[i] = (uint8_t)m->written[text].byte;
    if (!length)
        found = find_ends(m, set, &target->owner, count);
    for (int32_t i = 0; length && i < m->sets[whole].count && found >= 0; i++) {
        const Frame frame = m->frames[m->members[m->sets[whole].begin + i]];
        const Component *c = m->components + frame.component;
        const int32_t state = c->table[c->classes * frame.state + c->class_of[rest[0]]];
        int32_t next = state ? moved_frame(m, frame, state, rest[0]) : REFUSED, there = next;
        int64_t can = next < 0 ? 0 : is_productive(m, next);
        if ((next < 0 && next != REFUSED) || can < 0)
            found = next < 0 ? next : (int32_t)can;
        if (next < 0 || can <= 0)
            continue;
        there = set_of(m, &there, 1);
        for (int64_t j = 1; j < length && there > 0; j++)
            there = after(m, there, rest[j]);
        if (there > 0)
            there = find_ends(m, there, &target->owner, NULL);
        if (there < 0)
            found = there;
        else if (there)
            found = step(m, rest[0], next) ? 1 : NO_MEMORY;
    }
    free(rest);
    return found;
}

/* Goes on in what is open and may become something known: to where it no longer may. Returns 0, or what is missing. */
static int32_t around_known(Machine *m, int32_t number, int64_t *count)
{
    const int32_t next = next_on_way(m, number);
    int32_t set = number, whole;
    if (next <= 0)
        return next;
    if (next != number)
        return step(m, m->written[m->frames[next].text].byte, next) ? 0 : NO_MEMORY;
    if ((set = set_of(m, &set, 1)) < 0 || (whole = closed(m, set)) < 0)
        return set < 0 ? set : whole;
    for (int32_t i = 0; i < m->sets[whole].count; i++) {
        const int32_t frame = m->members[m->sets[whole].begin + i];
        const int64_t watched = is_watched(m, m->frames[frame]);
        if (watched < 0 || (!watched && !lead(m, count, frame)))
            return watched < 0 ? (int32_t)watched : NO_MEMORY;
    }
    return 0;
}

/* Goes on to what has to come, where a frame is in an object or an array. Returns 1, 0 where nothing has to, or what is
 * missing. */
static int32_t to_next(Machine *m, int32_t number, int64_t *count)
{
    const Frame frame = m->frames[number];
    const Component *c = m->components + frame.component;
    Target target = {0};
    int64_t status = each_owner(m, frame, note_target, &target);
    int32_t next;
    if (status < 0 || (target.text && (status = towards(m, number, &target, count))))
        return (int32_t)status;
    if (target.owner.count && m->components[target.owner.component].is_owner == OBJECT) {
        c = m->components + target.owner.component;
        target.written = m->written[frame.text].depth;
        for (int32_t i = -1; (i = target_name(m, c, target.owner.names, frame.text, i + 1)) >= 0;) {
            target.text = c->texts[i];
            if ((next = towards(m, number, &target, count)))
                return next;
        }
        return 0;
    }
    if (!c->legs || frame.count || target_name(m, c, frame.names, 0, 0) < 0)
        return 0;
    for (int64_t call = c->call_begin[frame.state]; call < c->call_begin[frame.state + 1]; call++) {
        const int64_t callee = c->callees[c->calls[2 * call]];
        if (callee != BEGIN && callee != BEGIN_REQUIRED)
            continue;
        if ((next = called(m, frame, c->calls + 2 * call)) == REFUSED)
            continue;
        if (next < 0)
            return next;
        return lead(m, count, next) ? 1 : NO_MEMORY;
    }
    return 0;
}

/* Writes the bytes that come next on the ways from a frame, and where they lead, to `steps`.
 *
 * Returns whether the text ends here, or what is missing.
 */
static int32_t find_steps(Machine *m, int32_t number)
{
    int64_t count = 0;
    int32_t ends = 0;
    m->step_count = 0;
    if (!lead(m, &count, number))
        return NO_MEMORY;
    while (count) {
        const Frame frame = m->frames[m->leads[--count]];
        const int32_t *exits;
        int64_t states, status;
        int32_t move, next, here;
        if (!has_exits(m, frame.component))
            return NEEDS_EXITS;
        here = m->leads[count];
        if ((next = to_next(m, here, &count)) < 0)
            return next;
        if (next)
            continue;
        if ((status = is_doubtful(m, frame)))
            return status < 0 ? (int32_t)status : DOUBTFUL;
        if ((status = is_watched(m, frame))) {
            if (status < 0 || (status = around_known(m, here, &count)) < 0)
                return (int32_t)status;
            continue;
        }
        states = m->components[frame.component].states;
        exits = exits_of(m, &frame);
        move = exits[MOVE * states + frame.state];
        if ((next = filler(m, &frame)) >= 0)
            move = next;
        else if (exits[SIZE * states + frame.state] >= UNREACHABLE)
            continue;
        else if (frame.text <= 0 && exits[SPACE * states + frame.state]) {
            const int32_t spaced = moved(m, frame, ' ');
            if (spaced != REFUSED && (spaced < 0 || !step(m, ' ', spaced)))
                return NO_MEMORY;
        }
        if (move >= 0 && move < CALLS) {
            next = moved(m, frame, move);
            if (next != REFUSED && (next < 0 || !step(m, move, next)))
                return NO_MEMORY;
        } else if (move >= CALLS) {
            next = called(m, frame, m->components[frame.component].calls + 2 * (int64_t)(move - CALLS));
            if (next != REFUSED && next < 0)
                return next;
            if (next != REFUSED && !lead(m, &count, next))
                return NO_MEMORY;
        } else if (!frame.below)
            ends = 1;
        if (move == ENDS && lead_returned(m, &count, frame) < 0)
            return NO_MEMORY;
    }
    return ends;
}

int32_t child_by(const Machine *m, int32_t node, int32_t byte)
{
    int64_t low = m->child[node], high = m->child[node + 1];
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (m->byte[middle] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low < m->child[node + 1] && m->byte[low] == byte ? (int32_t)low : 0;
}

/* The frame after the longest token of a filler, where a string needs many; 0 where it does not, or there is none. */
static int32_t after_run(Machine *m, int32_t number)
{
    Frame frame = m->frames[number];
    const Component *c = m->components + frame.component;
    const int32_t byte = filler(m, &frame);
    int32_t node = 0, longest = 0;
    if (byte < 0 || (frame.text > 0 && frame.text != NEW_TEXT) || owing(c, &frame) <= 2 * MOST_RUN ||
        c->table[c->classes * frame.state + c->class_of[byte]] != frame.state)
        return 0;
    for (int32_t length = 1; length <= MOST_RUN && (node = child_by(m, node, byte)); length++)
        if (has_token(m, node))
            longest = length;
    if (!longest)
        return 0;
    frame.count += longest;
    return frame_of(m, frame);
}

/* Looks at the tokens along the ways from a frame.
 *
 * best   written: one more than what the frames after these tokens need, at least
 * count  of the frames that have to be counted before; more are added
 *
 * Returns 0, or what is missing.
 */
static int32_t look_along(Machine *m, int32_t number, int32_t *best, int64_t *count)
{
    int64_t depth = 1;
    int32_t next;
    if (!has_room(&m->walk, &m->walk_room, 1, sizeof *m->walk))
        return NO_MEMORY;
    m->walk[0] = (Step){0, number};
    *best = UNREACHABLE;
    while (depth) {
        const Step here = m->walk[--depth];
        const int32_t ends = (m->work -= FRAME_WORK) < 0 ? TOO_LONG : find_steps(m, here.frame);
        if (ends < 0)
            return ends;
        if (ends && !here.by)
            *best = 0;
        for (int64_t i = 0; i < m->step_count; i++) {
            const int32_t node = child_by(m, here.by, m->steps[i].by), to = m->steps[i].frame;
            if (!node)
                continue;
            next = m->frames[to].needed;
            if (has_token(m, node) && next > 0 && next < *best)
                *best = next;
            if (has_token(m, node) && !next) {
                if (!has_room(&m->counting, &m->counting_room, *count + 1, sizeof *m->counting))
                    return NO_MEMORY;
                m->counting[(*count)++] = to;
            }
            if (m->child[node] < m->child[node + 1]) {
                if (!has_room(&m->walk, &m->walk_room, depth + 1, sizeof *m->walk))
                    return NO_MEMORY;
                m->walk[depth++] = (Step){node, to};
            }
        }
    }
    return 0;
}

/* Tokens that are enough to the end of a text that is in a frame, the one that ends it not counted.
 *
 * Returns UNREACHABLE if there is no way, or what is missing.
 */
static int32_t counted_needed(Machine *m, int32_t frame)
{
    int64_t count = 1;
    if (!has_room(&m->counting, &m->counting_room, 1, sizeof *m->counting))
        return NO_MEMORY;
    m->counting[0] = frame;
    while (count) {
        const int32_t here = m->counting[count - 1];
        const int64_t before = count;
        int32_t best = UNREACHABLE, status = 0, run;
        if ((m->work -= FRAME_WORK) < 0)
            status = TOO_LONG;
        if (m->frames[here].needed > 0) {
            count--;
            continue;
        }
        if (status)
            run = 0;
        else if ((run = has_exits(m, m->frames[here].component) ? after_run(m, here) : NEEDS_EXITS) < 0)
            status = run;
        else if (run && m->frames[run].needed > 0)
            best = m->frames[run].needed;
        else if (run && has_room(&m->counting, &m->counting_room, count + 1, sizeof *m->counting))
            m->counting[count++] = run;
        else if (run)
            status = NO_MEMORY;
        else
            status = look_along(m, here, &best, &count);
        if (status < 0) {
            for (int64_t i = 0; i < count; i++)
                if (m->frames[m->counting[i]].needed < 0)
                    m->frames[m->counting[i]].needed = 0;
            return status;
        }
        if (count > before)
            m->frames[here].needed = -1; /* under way: a way that comes back here is none */
        else {
            m->frames[here].needed = best < UNREACHABLE ? best + 1 : UNREACHABLE + 1;
            count--;
        }
    }
    return m->frames[frame].needed - 1;
}

/* The same: for what is open and can become nothing known a new text stands, so the ways are shared. */
int32_t frame_needed(Machine *m, int32_t number)
{
    Frame frame = m->frames[number];
    int32_t needed, other;
    int64_t watched;
    if (frame.needed > 0)
        return frame.needed - 1;
    if (frame.text <= 0 || frame.text == NEW_TEXT || (watched = is_watched(m, frame)) > 0)
        return counted_needed(m, number);
    frame.text = NEW_TEXT;
    other = watched < 0 ? (int32_t)watched : frame_of(m, frame);
    needed = other < 0 ? other : counted_needed(m, other);
    return needed == DOUBTFUL ? counted_needed(m, number) : needed;
}

/* As `frame_needed`, of the frame in a set that needs fewest. */
int32_t set_needed(Machine *m, int32_t set)
{
    int32_t best = UNREACHABLE;
    for (int32_t i = 0; m->sets[set].needed < 0 && i < m->sets[set].count; i++) {
        const int32_t needed = frame_needed(m, m->members[m->sets[set].begin + i]);
        if (needed < 0)
            return needed;
        if (needed < best)
            best = needed;
    }
    if (m->sets[set].needed < 0)
        m->sets[set].needed = best;
    return m->sets[set].needed;
}

/* Bytes that are enough to the end of a text; or what is missing. */
PUBLIC int64_t hf_guided_machine_size(Machine *m, int64_t set)
{
    m->work = MOST_WORK;
    return set_size(m, (int32_t)set);
}

/* Tokens that are enough to the end of a text, the one that ends it not counted; or what is missing. */
PUBLIC int64_t hf_guided_machine_needed(Machine *m, int64_t set)
{
    m->work = MOST_WORK;
    return set_needed(m, (int32_t)set);
}
