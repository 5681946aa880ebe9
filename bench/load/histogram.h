/* How long things took, in buckets that grow with what they hold: 1/64 of an octave wide, so that a value is told within 1.6 %. */

#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include <stdint.h>

#define SUB_BITS 6
#define BUCKETS ((64 - SUB_BITS + 1) << SUB_BITS)

struct histogram {
    uint64_t counts[BUCKETS];
    uint64_t total;
    uint64_t max; /* Exact. */
};

void histogram_add(struct histogram *, uint64_t value);

/* A value that `share` of all are at most; 0 when there are none. */
double histogram_at(const struct histogram *, double share);

#endif
