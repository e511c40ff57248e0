/* Reads texts, and says which masks they have, for all rows of a constraint at once: see frame_machine.py. */
#include "frames.h"

enum { MANY_BYTES = 16 }; /* bytes that are tried; more are a choice */

/* The set of a text without a byte, where a component is the whole. */
PUBLIC int64_t hf_guided_machine_start(Machine *m, int64_t component)
{
    int32_t frame = entered(m, (int32_t)component, 0, 0);
    return frame < 0 ? frame : set_of(m, &frame, 1);
}

/* Reads a token: the bytes on the way to its node. Returns the set after it; 0 if it does not fit, or what is missing. */
int32_t after_token(Machine *m, int32_t set, int64_t token)
{
    int64_t node = token >= 0 && token < m->size ? m->node_of[token] : 0, begin = m->longest;
    if (!node) /* no text */
        return 0;
    for (; node; node = m->parent[node])
        m->text[--begin] = m->byte[node];
    for (; begin < m->longest && set > 0; begin++)
        set = after(m, set, m->text[begin]);
    return set;
}

/* Reads a token in each of some sets.
 *
 * sets    (count) before the tokens
 * tokens  (count)
 * later   (count) written: the sets after them; 0 where one does not fit
 * work    how many frames may be looked at for one token
 *
 * Returns the bytes that the machine holds, or what is missing.
 */
PUBLIC int64_t hf_guided_machine_tokens(Machine *m, int64_t count, const int32_t *sets, const int64_t *tokens,
                                        int32_t *later, int64_t work)
{
    for (int64_t i = 0; i < count; i++) {
        m->work = work;
        if ((later[i] = after_token(m, sets[i], tokens[i])) < 0)
            return later[i];
    }
    return hf_guided_machine_bytes(m);
}

/* Reads some tokens, one after the other.
 *
 * later  (count) written: the sets after them, as far as they fit
 * work   see `hf_guided_machine_tokens`
 *
 * Returns how many fit, or what is missing.
 */
PUBLIC int64_t hf_guided_machine_text(Machine *m, int64_t set, int64_t count, const int64_t *tokens, int32_t *later,
                                      int64_t work)
{
    for (int64_t i = 0; i < count; i++) {
        m->work = work;
        if ((set = later[i] = after_token(m, (int32_t)set, tokens[i])) <= 0)
            return set ? set : i;
    }
    return count;
}

/* Whether a text may end: 1, 0, or what is missing. */
PUBLIC int64_t hf_guided_machine_completed(Machine *m, int64_t set)
{
    int32_t whole;
    m->work = MOST_WORK;
    whole = closed(m, (int32_t)set);
    if (whole < 0)
        return whole;
    if (m->sets[whole].completed < 0) {
        m->sets[whole].completed = 0;
        for (int32_t i = 0; i < m->sets[whole].count; i++) {
            const Frame *frame = m->frames + m->members[m->sets[whole].begin + i];
            if (!frame->below && m->components[frame->component].accepting[frame->state])
                m->sets[whole].completed = 1;
        }
    }
    return m->sets[whole].completed;
}

/* The key of a set's mask, where `left` tokens may still come, the one that ends the text included; -1 is any number.
 *
 * Returns twice the number of the mask, and 1 more where the text may end; NEAR_LIMIT where it is not known whether the
 * limit refuses a token; or what is missing. Sets with equal keys have the same mask.
 */
PUBLIC int64_t hf_guided_machine_key(Machine *m, int64_t set, int64_t left)
{
    const int64_t may_end = hf_guided_machine_completed(m, set);
    const int32_t same = may_end < 0 ? (int32_t)may_end : same_mask(m, (int32_t)set);
    if (same < 0)
        return same;
    return left >= 0 && left < m->sets[same].enough ? NEAR_LIMIT : 2 * (int64_t)same + may_end;
}

/* Which mask each of some sets has: see `hf_guided_machine_key`.
 *
 * left  (count)
 * keys  (count) written
 *
 * Returns 0, or what is missing.
 */
PUBLIC int64_t hf_guided_machine_keys(Machine *m, int64_t count, const int32_t *sets, const int64_t *left,
                                      int64_t *keys)
{
    for (int64_t i = 0; i < count; i++)
        if ((keys[i] = hf_guided_machine_key(m, sets[i], left[i])) < 0 && keys[i] != NEAR_LIMIT)
            return keys[i];
    return 0;
}

/* Whether a name is open in a set that is closed: then fewer bytes may lead on than the set has. */
static int has_names(const Machine *m, int64_t set)
{
    const Set *whole = m->sets + m->sets[set].closed;
    for (int32_t i = 0; i < whole->count; i++)
        if (m->frames[m->members[whole->begin + i]].text)
            return 1;
    return 0;
}

/* Writes the sets after each byte that may come.
 *
 * later  (256) written; 0 where a byte may not
 *
 * Returns 0, or what is missing.
 */
PUBLIC int64_t hf_guided_machine_onwards(Machine *m, int64_t set, int32_t *later)
{
    m->work = MOST_WORK;
    for (int byte = 0; byte < 256; byte++)
        if ((later[byte] = after(m, (int32_t)set, (uint8_t)byte)) < 0)
            return later[byte];
    return 0;
}

/* Writes the bytes that have to come, up to where the text may end or go on in several ways.
 *
 * text   (room) written
 * later  (1) written: the set after them
 *
 * Returns how many there are, or what is missing.
 */
PUBLIC int64_t hf_guided_machine_forced(Machine *m, int64_t set, uint8_t *text, int64_t room, int64_t *later)
{
    int64_t count = 0, may_end;
    int32_t next;
    for (;; count++) {
        int only = -1, named;
        *later = set;
        if ((may_end = hf_guided_machine_completed(m, set)) || count == room)
            return may_end < 0 ? may_end : count;
        named = has_names(m, set);
        for (int byte = 0, bytes = 0; byte < 256 && only < 256; byte++) {
            if (!(m->sets[set].bytes[byte >> 6] >> (byte & 63) & 1))
                continue;
            next = named && ++bytes <= MANY_BYTES ? after(m, (int32_t)set, (uint8_t)byte) : 1;
            if (next < 0)
                return next;
            if (next)
                only = only < 0 ? byte : 256;
        }
        if (only < 0 || only > 255)
            return count;
        text[count] = (uint8_t)only;
        if ((set = after(m, (int32_t)set, (uint8_t)only)) < 0)
            return set;
    }
}
