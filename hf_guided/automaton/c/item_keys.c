/* The keys of items: a text for each value, the same for all its texts.
 *
 * Python says the key of a complete text, once. What has only begun is compared with keys as far as its own key is
 * certain: up to the first object whose members may be in any order, and from there on by its strings.
 */
#include "frames.h"

int32_t key_of(Machine *m, int32_t text)
{
    int64_t length, status;
    if (text == NEW_TEXT || m->written[text].key)
        return text == NEW_TEXT ? NEW_TEXT : m->written[text].key;
    if ((length = opened(m, 0, text)) < 0 || !open_item(m, length, 0))
        return NO_MEMORY;
    status = m->ask(KEY, text, (int64_t)(intptr_t)m->item, length);
    return status < 0 ? FAILED : m->written[text].key;
}

static int32_t text_of(Machine *m, const uint8_t *bytes, int64_t length)
{
    int32_t text = EMPTY_TEXT;
    for (int64_t i = 0; i < length && text > 0; i++)
        text = text_plus(m, text, bytes[i]);
    return text;
}

/* Answers which key the value of a text has. Returns the number of the key, or that there is no memory. */
PUBLIC int64_t hf_guided_machine_key_is(Machine *m, int64_t text, const uint8_t *bytes, int64_t length)
{
    const int32_t key = text_of(m, bytes, length);
    if (key < 0 || !has_room(&m->keys, &m->keys_room, m->keys_count + length, 1))
        return NO_MEMORY;
    if (m->written[key].flat < 0) {
        memcpy(m->keys + m->keys_count, bytes, (size_t)length);
        m->written[key].flat = m->keys_count;
        m->keys_count += length;
    }
    m->written[text].key = key;
    return key;
}

/* Answers what may come in an array after the items of a set.
 *
 * keys    (count) first the `contested` ones, then the others that are known
 * target  (length) the bytes of the next item on the way out; of none where no item has to come
 *
 * Returns 0, or that there is no memory.
 */
PUBLIC int64_t hf_guided_machine_choices_are(Machine *m, int64_t component, int64_t items, int64_t may_end,
                                             int64_t may_go_on, int32_t *keys, int64_t contested, int64_t count,
                                             const uint8_t *target, int64_t length, int64_t longest)
{
    const int32_t first = set_of(m, keys, contested), all = set_of(m, keys, count);
    const int32_t text = length ? text_of(m, target, length) : 0;
    if (first < 0 || all < 0 || text < 0 || !has_room(&m->choices, &m->choices_room, m->choices_count + 1, sizeof *m->choices) ||
        !map_put(&m->choices_of, ((uint64_t)component << 32 | (uint64_t)items) + 1, (int32_t)m->choices_count))
        return NO_MEMORY;
    m->choices[m->choices_count++] = (Choices){first, all, text, longest, (uint8_t)may_end, (uint8_t)may_go_on};
    return 0;
}

/* The number of the choices in an array after the items of a set; or what is missing. */
int32_t choices_after(Machine *m, int32_t component, int32_t items)
{
    const uint64_t key = ((uint64_t)component << 32 | (uint64_t)items) + 1;
    const int32_t *known = map_find(&m->choices_of, key);
    const Set set = m->sets[items];
    if (!known && m->ask(component, items, (int64_t)(intptr_t)(m->members + set.begin), set.count) < 0)
        return FAILED;
    return known || (known = map_find(&m->choices_of, key)) ? *known : FAILED;
}

static int is_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9';
}

static int is_of_number(uint8_t byte)
{
    return is_digit(byte) || byte == '-' || byte == '+' || byte == '.' || byte == 'e' || byte == 'E';
}

/* Whether a number that may only have begun can be that of a key, whose digits have no zeros at both ends.
 *
 * The places are moved past both.
 */
static int same_number(const uint8_t *text, int64_t length, int64_t *place, const uint8_t *key, int64_t size,
                       int64_t *key_place)
{
    int64_t i = *place, k = *key_place;
    int in_digits = 1, has_begun = 0;
    if (k >= size || !is_of_number(key[k]))
        return 0;
    const int is_negative = key[k] == '-', is_zero = key[k] == '0';
    if (!is_zero && (text[i] == '-') != is_negative)
        return 0;
    k += is_negative;
    for (i += text[i] == '-'; i < length && is_of_number(text[i]); i++) {
        in_digits &= text[i] != 'e' && text[i] != 'E';
        if (!in_digits || text[i] == '.' || (!has_begun && text[i] == '0'))
            continue;
        has_begun = 1;
        if (text[i] != (k < size && is_digit(key[k]) ? key[k] : '0'))
            return 0;
        k += k < size && is_digit(key[k]);
    }
    if (i < length && !is_zero && k < size && is_digit(key[k]))
        return 0;
    while (k < size && is_of_number(key[k]))
        k++;
    *place = i;
    *key_place = k;
    return 1;
}

static int holds(const uint8_t *bytes, int64_t size, const uint8_t *part, int64_t length)
{
    for (int64_t i = 0; i + length <= size; i++)
        if (bytes[i] == part[0] && !memcmp(bytes + i, part, (size_t)length))
            return 1;
    return 0;
}

/* The place after the string that begins at a place; -1 if it has not ended. */
static int64_t string_end(const uint8_t *text, int64_t length, int64_t begin)
{
    for (int64_t i = begin + 1; i < length; i++)
        if (text[i] == '"')
            return i + 1;
        else if (text[i] == '\\')
            i++;
    return -1;
}

/* Whether a value can be that of a key, by its strings from the first object on, whose members may be in any order.
 *
 * A second member of the same name takes the place of the first: then the strings say nothing.
 */
static int has_strings(const uint8_t *text, int64_t length, int64_t begin, const uint8_t *key, int64_t size,
                       int64_t compared)
{
    int is_other = 0;
    for (int64_t i = begin, end, after; i < length; i = end) {
        end = i + 1;
        if (text[i] != '"')
            continue;
        if ((end = string_end(text, length, i)) < 0) { /* it could become a name that is there */
            if (memchr(text + i, '\\', (size_t)(length - i)) || holds(text + begin, i - begin, text + i, length - i))
                return 1;
            return !is_other && holds(key, size, text + i, length - i);
        }
        if (!(compared & SPELLED) && memchr(text + i, '\\', (size_t)(end - i))) {
            for (after = end; after < length && is_space(text[after]); after++)
                ;
            if (after >= length || text[after] == ':') /* a name, or maybe */
                return 1;
            continue;
        }
        is_other |= !holds(key, size, text + i, end - i);
        for (after = end; after < length && is_space(text[after]); after++)
            ;
        if (after < length && text[after] == ':' && holds(text + begin, i - begin, text + i, end - i))
            return 1;
    }
    return !is_other;
}

/* Whether a value whose text has begun can be that of a key; 1 where that is not certain. */
int may_become(const Machine *m, const uint8_t *text, int64_t length, int32_t key_text, int64_t compared)
{
    const uint8_t *key = key_text == NEW_TEXT ? NULL : m->keys + m->written[key_text].flat;
    const int64_t size = m->written[key_text].depth;
    int64_t i = 0, k = 0;
    if (!key)
        return 0;
    while (i < length) {
        if (is_space(text[i])) {
            i++;
        } else if (is_of_number(text[i]) && text[i] != 'e') {
            if (!same_number(text, length, &i, key, size, &k))
                return 0;
        } else if (text[i] == '"') {
            const int64_t end = string_end(text, length, i), stop = end < 0 ? length : end;
            if (!(compared & SPELLED) && memchr(text + i, '\\', (size_t)(stop - i)))
                return 1;
            if (k + stop - i > size || memcmp(text + i, key + k, (size_t)(stop - i)))
                return 0;
            k += stop - i;
            i = stop;
        } else {
            if (k >= size || key[k] != text[i])
                return 0;
            if (text[i] == '{' && !(compared & ORDERED))
                return has_strings(text, length, i, key, size, compared);
            i++, k++;
        }
    }
    return 1;
}
