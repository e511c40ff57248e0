/* The innermost loops of component_walk.py, class_tables.py and token_trie.py, on their arrays.
 *
 * Plain C without Python's headers, so that one library serves every version of Python: scripts/build_core.py compiles
 * it, core.py calls it. Indices come from the arrays of a TokenTrie and a ByteDfa and are not checked again.
 */
#include <stdint.h>
#include <string.h>

#include "public.h"

/* core.py takes no library of another version. */
PUBLIC int32_t hf_guided_version(void)
{
    return VERSION;
}

/* All nodes that are reached below some nodes of a trie, breadth first.
 *
 * child     (nodes + 1) where each node's children begin
 * byte      (nodes) the byte that leads to each
 * class_of  (256) the class of each byte
 * table     (state count, classes) the next state; 0 is dead
 * nodes     (room) the first `begun` are given, the others written
 * states    (room) the state at each node, likewise
 *
 * Returns how many there are, the given ones too; -1 if there is no room for them.
 */
PUBLIC int64_t hf_guided_descend(const int64_t *child, const uint8_t *byte, const uint8_t *class_of,
                                 const int32_t *table, int64_t classes, int64_t begun, int64_t room,
                                 int32_t *nodes, int32_t *states)
{
    int64_t found = begun;
    for (int64_t done = 0; done < found; done++) {
        const int64_t end = child[nodes[done] + 1];
        const int32_t *row = table + classes * states[done];
        for (int64_t node = child[nodes[done]]; node < end; node++) {
            const int32_t after = row[class_of[byte[node]]];
            if (after) {
                if (found == room)
                    return -1;
                nodes[found] = (int32_t)node;
                states[found++] = after;
            }
        }
    }
    return found;
}

/* As hf_guided_descend; and where the nodes that it writes leave the automaton, ordered by the state there.
 *
 * leaves      (state_count) whether anything but bytes may come
 * left        (room) nodes in such states that have children, those of the lowest state first
 * groups      (1 + 3 * state_count) how many such states there are; then of each its number, and where its nodes end
 *             in `left`. The last third is used meanwhile.
 */
PUBLIC int64_t hf_guided_leave(const int64_t *child, const uint8_t *byte, const uint8_t *class_of,
                               const int32_t *table, int64_t classes, const uint8_t *leaves, int64_t state_count,
                               int64_t begun, int64_t room, int32_t *nodes, int32_t *states, int32_t *left,
                               int32_t *groups)
{
    const int64_t found = hf_guided_descend(child, byte, class_of, table, classes, begun, room, nodes, states);
    if (found < 0)
        return found;
    int32_t *places = groups + 1 + 2 * state_count;
    memset(places, 0, sizeof(int32_t) * (size_t)state_count);
    for (int64_t i = begun; i < found; i++)
        if (leaves[states[i]] && child[nodes[i]] < child[nodes[i] + 1])
            places[states[i]]++;
    int32_t number = 0, end = 0;
    for (int64_t state = 0; state < state_count; state++) {
        const int32_t count = places[state];
        places[state] = end;
        if (count) {
            groups[1 + 2 * number] = (int32_t)state;
            groups[2 + 2 * number++] = end += count;
        }
    }
    groups[0] = number;
    for (int64_t i = begun; i < found; i++)
        if (leaves[states[i]] && child[nodes[i]] < child[nodes[i] + 1])
            left[places[states[i]]++] = nodes[i];
    return found;
}

enum { BODY_BYTES = 24 }; /* that lead to the body of a string, or of something like it; with fewer a walk is short */

/* The state that most bytes lead to from a state, the first of them; 0 where they are fewer than BODY_BYTES. */
static int32_t most_frequent(const uint8_t *class_of, const int32_t *table, int64_t classes, int32_t state)
{
    const int32_t *row = table + classes * state;
    int32_t sizes[256] = {0}, most = 0, frequent = 0;
    for (int byte = 0; byte < 256; byte++)
        sizes[class_of[byte]]++;
    for (int64_t i = 0; i < classes; i++) {
        int32_t count = 0;
        if (!row[i] || (row[i] == frequent))
            continue;
        for (int64_t j = i; j < classes; j++)
            count += row[j] == row[i] ? sizes[j] : 0;
        if (count > most || (count == most && row[i] < frequent))
            most = count, frequent = row[i];
    }
    return most >= BODY_BYTES ? frequent : 0;
}

/* The state that most bytes lead to, BODY_BYTES or more, if they lead from there to itself; else 0. */
PUBLIC int64_t hf_guided_body(const uint8_t *class_of, const int32_t *table, int64_t classes, int64_t state)
{
    const int32_t body = most_frequent(class_of, table, classes, (int32_t)state);
    return body == state || (body && most_frequent(class_of, table, classes, body) == body) ? body : 0;
}

/* Where a byte leads from a state, if all other bytes lead from there as they lead in another automaton from its start.
 *
 * leaves  (state count) whether anything but bytes may come: not in the states that stand for those of the other one
 * form    (form_states, 256) the other automaton; its start is not left by this byte
 * stand   (form_states) written
 * todo    (form_states) scratch
 *
 * Returns 0 where it is not so.
 */
PUBLIC int64_t hf_guided_after_copy(const uint8_t *class_of, const int32_t *table, int64_t classes,
                                    const uint8_t *leaves, int64_t state, const int32_t *form, int64_t form_states,
                                    int64_t form_start, int64_t byte_after, int32_t *stand, int32_t *todo)
{
    int64_t used = 1;
    memset(stand, 0, (size_t)form_states * sizeof *stand);
    stand[form_start] = (int32_t)state;
    todo[0] = (int32_t)form_start;
    for (int64_t done = 0; done < used; done++) {
        const int32_t *row = table + classes * stand[todo[done]];
        if (leaves[stand[todo[done]]])
            return 0;
        for (int byte = 0; byte < 256; byte++) {
            const int32_t to = form[256 * todo[done] + byte], here = row[class_of[byte]];
            if (byte == byte_after && todo[done] == form_start)
                continue;
            if (!to != !here)
                return 0;
            if (to && !stand[to])
                stand[to] = here, todo[used++] = to;
            if (stand[to] != here)
                return 0;
        }
    }
    return table[classes * state + class_of[byte_after]];
}

/* Which texts are made of certain characters: one bit for each.
 *
 * characters  (32 * words, 2) the ASCII characters of each, one bit for each
 * heads       (32 * words) the first byte of each, and 256 where it comes again
 * among       (words) those that are asked about
 * others      (2) the ASCII characters that they may not have
 * mask, head  what the head has to be in these bits
 * made        (words) written
 */
PUBLIC void hf_guided_made_of(const uint64_t *characters, const uint16_t *heads, const uint32_t *among, int64_t words,
                              const uint64_t *others, int64_t mask, int64_t head, uint32_t *made)
{
    const uint64_t low = others[0], high = others[1];
    for (int64_t i = 0; i < words; i++) {
        uint32_t bits = 0;
        for (int64_t at = 32 * i; among[i] && at < 32 * i + 32; at++) {
            const uint64_t has = (characters[2 * at] & low) | (characters[2 * at + 1] & high);
            bits |= (uint32_t)!(has | (uint64_t)((heads[at] & mask) ^ head)) << (at - 32 * i);
        }
        made[i] = bits & among[i];
    }
}

/* The numbers of the bits that are set, ascending; one more may be written. Returns how many there are. */
PUBLIC int64_t hf_guided_ones(const uint32_t *bits, int64_t words, int32_t *numbers)
{
    int64_t found = 0;
    for (int64_t i = 0; i < words; i++)
        for (int bit = 0; bit < 32 && bits[i] >> bit; bit++) {
            numbers[found] = (int32_t)(32 * i + bit);
            found += bits[i] >> bit & 1;
        }
    return found;
}

/* Sets the bits of the tokens that end in some nodes.
 *
 * token_start  (nodes + 1) where the tokens of each node begin
 * token_ids    their ids
 * nodes        (count) of the trie
 * words        the mask
 */
PUBLIC void hf_guided_add_tokens(const int64_t *token_start, const int64_t *token_ids, const int32_t *nodes,
                                 int64_t count, uint32_t *words)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t end = token_start[nodes[i] + 1];
        for (int64_t place = token_start[nodes[i]]; place < end; place++)
            words[token_ids[place] >> 5] |= (uint32_t)1 << (token_ids[place] & 31);
    }
}
