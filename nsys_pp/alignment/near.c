/* The inner loops of an alignment: pairs of events and operations that are near each other by a line between two
   clocks, the evidence of these pairs, and votes for offsets. `near.py` and `votes.py` call them.

   They are compiled because `align` of 32 reports takes 2 to 4 times as long with numpy: 6.0 s of CPU against 19.8
   without the search and its evidence, and 11.2 without the votes. Their definitions are plain loops in
   tests/alignment. No function keeps a pointer or allocates; each checks what it writes against the sizes it is
   given, and returns 1 where there is no room. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define API __attribute__((visibility("default")))

/* Points (events of one clock) and others (operations of a timeline), which stay the same from one search to the next.
   A point is near no other of another key: the times of the others of each key lie beyond those of the key before. */
typedef struct {
    int64_t count;
    const double *end, *share; /* share: 1 by the number of points of this key at this time */
    const int32_t *channel, *kind;
    int64_t channel_count;
    const uint8_t *is_message; /* of each channel */
    int64_t comparable_count;  /* points with others of their key, by channel, then by time plus base */
    const int32_t *comparable;
    const double *base; /* of each of these: added to predicted times before they are compared with `time` */
    int64_t other_count;
    const double *time, *own_time; /* `time` ascends; own_time: without what is added for the key */
    const int32_t *other_channel, *other_kind;
    int64_t other_channel_count;
    int64_t send, receive;      /* kinds: a send is near no send, and a receive near no receive */
    double first, last, beyond; /* limits of own_time; times further beyond them are compared as if they were nearer */
} Points;

/* A search by a line: the predicted time of a point is end + offset + rate * (end - center). */
typedef struct {
    double offset, rate, center, tolerance, margin; /* margin: added at both ends of the time that both sides have */
    int64_t capacity, pairs, links;                 /* pairs, and pairs of channels ("links"), with room for `capacity` */
    int32_t *point, *other, *link;                  /* of each pair, by channel of the point */
    double *residual;                               /* time of the other minus predicted time of the point */
    int32_t *link_channel, *link_other;             /* channels of each link; links of one channel follow each other */
    int64_t *pair_count;
    double *residuals, *squares, *shares;             /* sums of each link */
    double *evidence, *scatter, *missing, *weight;    /* of each link: `near_weigh` */
    int32_t *own_within, *others_within;              /* points and others of each channel in the time of both */
    double within_ns;                                 /* this time */
    int64_t *stamp, *owner_stamp, stamps;             /* of each channel of the others; of each of the others; the last */
    int32_t *best, *touched, *owner;                  /* of each channel of the others, twice; of each of the others */
} Search;

/* How links are weighed (`near.py` has the meaning of each), and what is found. */
typedef struct {
    double usual, prior_count, lockstep, missing, missing_message;
    int64_t measurable, measurable_whole;
    double sharpest; /* least scatter of the chosen links */
    uint8_t *is_chosen; /* of each link */
} Evidence;

/* Voters and the rows of the others that each may vote for. */
typedef struct {
    int64_t count;
    const double *end, *expected;
    const int64_t *low, *high;
    int64_t other_count;
    const double *times;
    double half_width; /* largest distance of another from the expected time */
    double least, most, first, last; /* offsets, and times of voters with votes */
    int64_t votes;
    int64_t *inside; /* votes of each voter */
} Votes;

API int64_t near_points_size(void) { return sizeof(Points); }
API int64_t near_search_size(void) { return sizeof(Search); }
API int64_t near_evidence_size(void) { return sizeof(Evidence); }
API int64_t near_votes_size(void) { return sizeof(Votes); }

static int are_below(int64_t count, const int32_t *values, int64_t limit) {
    for (int64_t row = 0; row < count; row++)
        if (values[row] < 0 || values[row] >= limit) return 0;
    return 1;
}

/* Return 0 if all numbers of rows and channels are there, and times ascend. */
API int64_t near_check(const Points *of) {
    for (int64_t row = 1; row < of->other_count; row++)
        if (!(of->time[row] >= of->time[row - 1])) return 1;
    return !are_below(of->count, of->channel, of->channel_count) ||
           !are_below(of->other_count, of->other_channel, of->other_channel_count) ||
           !are_below(of->comparable_count, of->comparable, of->count);
}

/* Count the points and others of each channel in the time that both have. */
static void count_within(const Points *of, Search *to) {
    double first = INFINITY, last = -INFINITY;
    for (int64_t point = 0; point < of->count; point++) {
        double end = of->end[point], time = end + (to->offset + to->rate * (end - to->center));
        first = time < first ? time : first;
        last = time > last ? time : last;
    }
    double since = (first > of->first ? first : of->first) - to->margin;
    double until = (last < of->last ? last : of->last) + to->margin;
    memset(to->own_within, 0, (size_t)of->channel_count * sizeof(int32_t));
    memset(to->others_within, 0, (size_t)of->other_channel_count * sizeof(int32_t));
    for (int64_t point = 0; point < of->count; point++) {
        double end = of->end[point], time = end + (to->offset + to->rate * (end - to->center));
        to->own_within[of->channel[point]] += time >= since && time <= until;
    }
    for (int64_t row = 0; row < of->other_count; row++)
        to->others_within[of->other_channel[row]] += of->own_time[row] >= since && of->own_time[row] <= until;
    to->within_ns = until - since;
}

static double within(double value, double least, double most) {
    return value < least ? least : value > most ? most : value;
}

/* Return the first row from which times are at least `time`; `row` is a guess that is mostly a few rows before. */
static int64_t find_time(const double *times, int64_t count, double time, int64_t row) {
    int64_t low = 0, high = count, step = 1;
    if (row < count && times[row] < time) {
        for (low = row + 1; row + step < count && times[row + step] < time; step *= 2) low = row + step + 1;
        if (row + step < count) high = row + step;
    } else {
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

/* Add the nearest of the others in each of their channels to the pairs, for one point; -1 without room. */
static int64_t add_nearest(const Points *of, Search *to, int64_t at, int64_t *low) {
    int32_t point = of->comparable[at], kind = of->kind[point];
    double end = of->end[point], time = end + (to->offset + to->rate * (end - to->center));
    double least = of->first - of->beyond, most = of->last + of->beyond;
    double high = within(time + to->tolerance, least, most) + of->base[at];
    int is_one_sided = kind == of->send || kind == of->receive;
    int64_t stamp = ++to->stamps, touched = 0, row;
    row = *low = find_time(of->time, of->other_count, within(time - to->tolerance, least, most) + of->base[at], *low);
    for (; row < of->other_count && of->time[row] <= high; row++) {
        int32_t channel = of->other_channel[row];
        if (is_one_sided && of->other_kind[row] == kind) continue;
        if (to->stamp[channel] != stamp) {
            to->stamp[channel] = stamp;
            to->best[channel] = (int32_t)row;
            to->touched[touched++] = channel;
        } else if (fabs(of->own_time[row] - time) < fabs(of->own_time[to->best[channel]] - time))
            to->best[channel] = (int32_t)row;
    }
    if (to->pairs + touched > to->capacity) return -1;
    for (int64_t number = 0; number < touched; number++) {
        int32_t other = to->best[to->touched[number]];
        to->point[to->pairs] = point;
        to->other[to->pairs] = other;
        to->residual[to->pairs++] = of->own_time[other] - time;
    }
    return 0;
}

/* Keep the pairs of a channel from `first` on whose point is the nearest to the other, and sum them by link. */
static void keep_mutual(const Points *of, Search *to, int64_t first, int32_t channel) {
    int64_t stamp = ++to->stamps, stop = to->pairs;
    for (int64_t row = first; row < stop; row++) {
        int32_t other = to->other[row];
        if (to->owner_stamp[other] != stamp || fabs(to->residual[row]) < fabs(to->residual[to->owner[other]])) {
            to->owner_stamp[other] = stamp;
            to->owner[other] = (int32_t)row;
        }
    }
    to->pairs = first;
    for (int64_t row = first; row < stop; row++) {
        int32_t other = to->other[row], other_channel = of->other_channel[other];
        double residual = to->residual[row];
        if (to->owner[other] != row) continue;
        if (to->stamp[other_channel] != stamp) {
            int64_t link = to->links++;
            to->stamp[other_channel] = stamp;
            to->best[other_channel] = (int32_t)link;
            to->link_channel[link] = channel;
            to->link_other[link] = other_channel;
            to->pair_count[link] = 0;
            to->residuals[link] = to->squares[link] = to->shares[link] = 0.0;
        }
        int32_t link = to->best[other_channel];
        to->point[to->pairs] = to->point[row];
        to->other[to->pairs] = other;
        to->residual[to->pairs] = residual;
        to->link[to->pairs++] = link;
        to->pair_count[link]++;
        to->residuals[link] += residual;
        to->squares[link] += residual * residual;
        to->shares[link] += of->share[to->point[to->pairs - 1]];
    }
}

/* Find the pairs within the tolerance that are the nearest of each other, in each pair of channels. */
API int64_t near_search(const Points *of, Search *to) {
    int64_t at = 0, low = 0;
    to->pairs = to->links = 0;
    count_within(of, to);
    while (at < of->comparable_count) {
        int32_t channel = of->channel[of->comparable[at]];
        int64_t first = to->pairs;
        for (; at < of->comparable_count && of->channel[of->comparable[at]] == channel; at++)
            if (add_nearest(of, to, at, &low)) return 1;
        keep_mutual(of, to, first, channel);
    }
    return 0;
}

/* Sum the logarithms of the likelihood ratios of the pairs of each link: of products, as a logarithm takes longer than a
   factor. `missing` is room for the products. */
static void sum_closeness(Search *of, const Evidence *to) {
    double factor = 2 * to->lockstep * 0.3675 / to->usual;
    for (int64_t link = 0; link < of->links; link++) {
        of->evidence[link] = 0.0;
        of->missing[link] = 1.0;
    }
    for (int64_t row = 0; row < of->pairs; row++) {
        double apart = fabs(of->residual[row]), relative = apart / to->usual, spread = 1 + relative * relative / 3;
        int32_t link = of->link[row];
        double value = of->missing[link] * (factor * (apart > to->usual ? apart : to->usual) / (spread * spread));
        if (value < 1e-200 || value > 1e200) {
            of->evidence[link] += log(value);
            value = 1.0;
        }
        of->missing[link] = value;
    }
    for (int64_t link = 0; link < of->links; link++) of->evidence[link] += log(of->missing[link]);
}

/* Find the evidence, scatter and weight of each link. */
static void weigh_links(const Points *points, Search *of, const Evidence *to) {
    double duration = of->within_ns > 1.0 ? of->within_ns : 1.0;
    for (int64_t link = 0; link < of->links; link++) {
        int64_t number = of->pair_count[link], own = number, others = number;
        if (of->own_within[of->link_channel[link]] > own) own = of->own_within[of->link_channel[link]];
        if (of->others_within[of->link_other[link]] > others) others = of->others_within[of->link_other[link]];
        int is_message = points->is_message[of->link_channel[link]];
        double count = (double)number, only_one = (double)(own + others - 2 * number), unexplained = only_one;
        /* stages in the middle of a pipeline share half of their messages with each neighbour */
        if (is_message) unexplained = only_one > count ? only_one - count : 0.0;
        double rate = (double)(own > others ? own : others) / duration, usual = to->usual;
        /* operations of channels in lockstep are near each other together, not one by one */
        double independent = fmin(1.0, (8 + 2 * sqrt(count)) / count);
        double scatter = sqrt((of->squares[link] + to->prior_count * (usual * usual)) / (count + to->prior_count));
        double first = log(1 / (2 * to->lockstep * rate * (scatter > usual ? scatter : usual)));
        double missing = -(is_message ? to->missing_message : to->missing) * unexplained;
        of->evidence[link] =
            (of->evidence[link] * independent + (first > 0 ? first : 0.0) + missing) * (of->shares[link] / count);
        of->scatter[link] = scatter;
        of->missing[link] = missing;
        of->weight[link] = sqrt(count) / fmax(count + only_one, 1.0);
    }
}

/* Weigh the links of a search, and choose the one with most evidence, more than none, for each channel of the points. */
API int64_t near_weigh(const Points *points, Search *of, Evidence *to) {
    sum_closeness(of, to);
    weigh_links(points, of, to);
    to->sharpest = INFINITY;
    for (int64_t link = 0; link < of->links;) {
        int64_t best = link, stop = link;
        for (; stop < of->links && of->link_channel[stop] == of->link_channel[link]; stop++)
            if (of->evidence[stop] > of->evidence[best]) best = stop;
        for (; link < stop; link++) {
            int64_t number = of->pair_count[link];
            to->is_chosen[link] = link == best && of->evidence[link] > 0;
            int is_measured = number >= to->measurable || (number >= to->measurable_whole && of->missing[link] == 0);
            if (to->is_chosen[link] && is_measured)
                to->sharpest = fmin(to->sharpest, sqrt(of->squares[link] / (double)number));
        }
    }
    return 0;
}

static int may_vote(const Votes *of, int64_t voter, int64_t row) {
    return fabs(of->times[row] - of->expected[voter]) <= of->half_width;
}

/* Count the votes of each voter, and find their limits; 1 where a row is not there. */
API int64_t near_count_votes(Votes *of) {
    of->votes = 0;
    of->least = of->first = INFINITY;
    of->most = of->last = -INFINITY;
    for (int64_t voter = 0; voter < of->count; voter++) {
        if (of->low[voter] < 0 || of->high[voter] > of->other_count) return 1;
        of->inside[voter] = 0;
        for (int64_t row = of->low[voter]; row < of->high[voter]; row++) {
            if (!may_vote(of, voter, row)) continue;
            double offset = of->times[row] - of->end[voter];
            of->least = offset < of->least ? offset : of->least;
            of->most = offset > of->most ? offset : of->most;
            of->inside[voter]++;
        }
        if (!of->inside[voter]) continue;
        of->votes += of->inside[voter];
        of->first = fmin(of->first, of->end[voter]);
        of->last = fmax(of->last, of->end[voter]);
    }
    return 0;
}

/* Sum the votes by sections of offsets from the least on, `width` each: those of a voter weigh 1 together. */
API int64_t near_sum_votes(const Votes *of, double width, int64_t section_count, double *sums) {
    for (int64_t voter = 0; voter < of->count; voter++)
        for (int64_t row = of->low[voter]; row < of->high[voter]; row++) {
            if (!may_vote(of, voter, row)) continue;
            int64_t section = (int64_t)((of->times[row] - of->end[voter] - of->least) / width);
            if (section < 0 || section >= section_count) return 1;
            sums[section] += 1.0 / (double)of->inside[voter];
        }
    return 0;
}

/* List the votes in sections that are kept: voter and other of each, in order of these; 1 without room. */
API int64_t near_list_votes(
    const Votes *of, double width, int64_t section_count, const uint8_t *is_kept, int64_t capacity, int64_t *voters,
    int64_t *others, int64_t *listed
) {
    *listed = 0;
    for (int64_t voter = 0; voter < of->count; voter++)
        for (int64_t row = of->low[voter]; row < of->high[voter]; row++) {
            if (!may_vote(of, voter, row)) continue;
            int64_t section = (int64_t)((of->times[row] - of->end[voter] - of->least) / width);
            if (section < 0 || section >= section_count || *listed >= capacity) return 1;
            if (!is_kept[section]) continue;
            voters[*listed] = voter;
            others[(*listed)++] = row;
        }
    return 0;
}

/* Return the value at a position in ascending order, and leave those before it before it. */
static double select_value(double *values, int64_t count, int64_t position) {
    int64_t first = 0, last = count - 1;
    while (first < last) {
        double pivot = values[first + (last - first) / 2];
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

static double find_median(double *values, int64_t count) {
    double high = select_value(values, count, count / 2), low = high;
    if (count % 2 == 0) {
        low = values[0];
        for (int64_t row = 1; row < count / 2; row++) low = values[row] > low ? values[row] : low;
    }
    return low + (high - low) / 2;
}

/* Fit a line to points by least squares with Cauchy weights (`lines.fit_line`); `line` is offset, rate and center, first of
   the line to begin with. `relative`: noise of each point. `room`: for the points. 1 where a number is not
   finite. */
API int64_t near_fit_line(
    int64_t count, const double *times, const double *values, const double *relative, double floor, double drift,
    int64_t rounds, double *line, double *room
) {
    double center = 0.0;
    for (int64_t row = 0; row < count; row++) center += times[row];
    center /= (double)count;
    double offset = line[0] + line[1] * (center - line[2]), rate = line[1];
    for (int64_t row = 0; row < count; row++) /* also keeps the selection from numbers that have no order */
        if (!isfinite(times[row]) || !isfinite(values[row]) || !(relative[row] > 0)) return 1;
    for (int64_t round = 0; round < rounds && isfinite(offset) && isfinite(rate); round++) {
        for (int64_t row = 0; row < count; row++) {
            double residual = values[row] - (offset + rate * (times[row] - center));
            room[row] = fabs(residual / relative[row]);
        }
        double scale = 1.4826 * find_median(room, count), prior;
        double total = 0.0, sx = 0.0, sxx = 0.0, sy = 0.0, sxy = 0.0;
        if (!(scale > floor)) scale = floor;
        for (int64_t row = 0; row < count; row++) {
            double x = times[row] - center, noise = relative[row];
            double apart = (values[row] - (offset + rate * x)) / (noise * 2 * scale);
            double weight = 1 / ((1 + apart * apart) * (noise * noise));
            total += weight;
            sx += weight * x;
            sxx += weight * x * x;
            sy += weight * values[row];
            sxy += weight * x * values[row];
        }
        prior = scale / drift;
        sxx += prior * prior;
        rate = (total * sxy - sx * sy) / (total * sxx - sx * sx);
        offset = (sy - rate * sx) / total;
    }
    line[0] = offset;
    line[1] = rate;
    line[2] = center;
    return !isfinite(offset) || !isfinite(rate);
}
