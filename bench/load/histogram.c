/* How long things took: a logarithmic histogram with linear steps within each octave. */

#include "histogram.h"

static unsigned bucket_of(uint64_t value) {
    if (value < (1u << SUB_BITS))
        return (unsigned)value;
    unsigned shift = 63u - (unsigned)__builtin_clzll(value) - SUB_BITS;
    return ((shift + 1) << SUB_BITS) + (unsigned)((value >> shift) - (1u << SUB_BITS));
}

static double middle_of(unsigned bucket) {
    if (bucket < (1u << SUB_BITS))
        return bucket;
    unsigned shift = (bucket >> SUB_BITS) - 1;
    uint64_t lowest = ((uint64_t)(bucket & ((1u << SUB_BITS) - 1)) + (1u << SUB_BITS)) << shift;
    return (double)lowest + (double)((uint64_t)1 << shift) / 2;
}

void histogram_add(struct histogram *histogram, uint64_t value) {
    histogram->counts[bucket_of(value)]++;
    histogram->total++;
    if (value > histogram->max)
        histogram->max = value;
}

double histogram_at(const struct histogram *histogram, double share) {
    double wanted = share * (double)histogram->total;
    uint64_t seen = 0;
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
        seen += histogram->counts[bucket];
        if (seen > 0 && (double)seen >= wanted) {
            double middle = middle_of(bucket);
            return middle < (double)histogram->max ? middle : (double)histogram->max;
        }
    }
    return 0;
}
