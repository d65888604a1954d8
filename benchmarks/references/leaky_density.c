/* Log posterior of a network with one hidden layer of leaky ReLU, one input and one
   latent z that is integrated out over given nodes; its gradient; and leapfrogs.

   At a value of z, each hidden node is off on one side of a threshold of x and on at the
   other. With the rows sorted by x, outputs at all rows are running sums of what changes
   at the thresholds, and the gradient is differences of running sums. So a gradient
   costs rows x nodes + nodes x hidden steps instead of rows x nodes x hidden.

   Weights are in the order of ncai.model.networks.FlatNetwork: hidden biases b, input
   weights a, latent weights c, the output bias d, output weights v. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 16
#define MOST_HIDDEN 64
#define MOST_BLOCKS 64 /* of LANES nodes of z */
#define MOST_ROWS 1024
#define SLOPE 0.01
#define TINY 1e-12

typedef float Lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t Whole __attribute__((vector_size(4 * LANES)));

typedef struct {
    int num_rows, num_hidden, num_nodes; /* nodes: a multiple of LANES, by padding */
    int num_cells;           /* of the table that finds rows */
    const float *inputs, *targets; /* sorted by input; a last input of infinity */
    const int32_t *cells;    /* first row of each cell, of equal widths */
    double cells_start, cells_per_unit;
    const float *nodes, *log_weights; /* of z: values, and log weights of the rule */
    double precision, prior_variance;
} Problem;

typedef struct { Lanes level, slope; } Sums; /* f = level + slope x, and derivatives */

static Sums sums[(MOST_ROWS + 1) * MOST_BLOCKS];
static int32_t first[MOST_HIDDEN][MOST_BLOCKS * LANES];

static inline Lanes larger(Lanes a, Lanes b) {
    Whole left = a > b;
    return (Lanes)(((Whole)a & left) | ((Whole)b & ~left));
}

/* Of arguments up to 0. */
static inline Lanes exponential(Lanes x) {
    x = larger(x, x * 0 - 87.0f);
    Whole power = __builtin_convertvector(x * 1.44269504f - 0.5f, Whole);
    Lanes n = __builtin_convertvector(power, Lanes);
    Lanes r = x - n * 0.693359375f + n * 2.12194440e-4f;
    Lanes p = 1.9875691500e-4f * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return (Lanes)((Whole)p + (power << 23));
}

static inline float maximum(Lanes a) {
    float top = a[0];
    for (int l = 1; l < LANES; l++) top = a[l] > top ? a[l] : top;
    return top;
}

static inline float total_of(Lanes a) {
    float sum = 0;
    for (int l = 0; l < LANES; l++) sum += a[l];
    return sum;
}

/* The first row that lies above x. */
static inline int row_above(const Problem *p, float x) {
    double place = (x - p->cells_start) * p->cells_per_unit;
    place = place < 0 ? 0 : place > p->num_cells - 1 ? p->num_cells - 1 : place;
    int row = p->cells[(int)place];
    while (p->inputs[row] <= x) row++;
    return row < p->num_rows ? row : p->num_rows;
}

/* Put what changes at the thresholds into the sums; the slopes before all rows. */
static void jumps(const Problem *p, const double *w, int blocks, Lanes *level,
                  double *slope) {
    const int H = p->num_hidden, M = p->num_nodes;
    const double *b = w, *a = w + H, *c = w + 2 * H, *v = w + 3 * H + 1;
    float *starts = (float *)level, *values = (float *)sums;
    double base = w[3 * H], move = 0;
    memset(sums, 0, (p->num_rows + 1) * blocks * sizeof(Sums));
    *slope = 0;
    for (int k = 0; k < H; k++) {
        const double before = a[k] <= -TINY ? 1 : SLOPE;
        base += v[k] * before * b[k];
        move += v[k] * before * c[k];
        *slope += v[k] * before * a[k];
    }
    for (int m = 0; m < M; m++) starts[m] = (float)(base + move * p->nodes[m]);
    for (int k = 0; k < H; k++) {
        const double ak = fabs(a[k]) < TINY ? TINY : a[k];
        const float size = (float)((ak > 0 ? 1 : -1) * (1 - SLOPE) * v[k]);
        const float bias = (float)b[k], latent = (float)c[k], turn = (float)(size * ak);
        const float over = (float)(-1 / ak);
        for (int m = 0; m < M; m++) {
            const float offset = bias + latent * p->nodes[m];
            const int row = row_above(p, offset * over);
            first[k][m] = row;
            float *at = values + ((row * blocks + m / LANES) * 2 * LANES + m % LANES);
            at[0] += size * offset;
            at[LANES] += turn;
        }
    }
}

/* Log likelihood; the sums become running sums of its derivatives by outputs. */
static inline __attribute__((always_inline)) double rows_likelihood(
    const Problem *p, const int blocks, const Lanes *start, double slope) {
    const Lanes *nodes_weights = (const Lanes *)p->log_weights;
    const float half = 0.5f * (float)p->precision, precision = (float)p->precision;
    Lanes level[MOST_BLOCKS], turn[MOST_BLOCKS], to0[MOST_BLOCKS], to1[MOST_BLOCKS];
    for (int i = 0; i < blocks; i++) {
        level[i] = start[i];
        turn[i] = level[i] * 0 + (float)slope;
        to0[i] = to1[i] = level[i] * 0;
    }
    double value = 0, product = 1;
    for (int n = 0; n < p->num_rows; n++) {
        Sums *here = sums + n * blocks;
        const float x = p->inputs[n], y = p->targets[n];
        Lanes error[MOST_BLOCKS], logs[MOST_BLOCKS];
        Lanes top = nodes_weights[0] * 0 - 1e30f, all = nodes_weights[0] * 0;
        for (int i = 0; i < blocks; i++) {
            level[i] += here[i].level;
            turn[i] += here[i].slope;
            error[i] = y - level[i] - turn[i] * x;
            logs[i] = nodes_weights[i] - half * error[i] * error[i];
            top = larger(top, logs[i]);
        }
        const float peak = maximum(top);
        for (int i = 0; i < blocks; i++) {
            logs[i] = exponential(logs[i] - peak);
            all += logs[i];
        }
        const float total = total_of(all);
        const float factor = precision / total;
        for (int i = 0; i < blocks; i++) {
            here[i].level = to0[i];
            here[i].slope = to1[i];
            Lanes g = logs[i] * error[i] * factor;
            to0[i] += g;
            to1[i] += g * x;
        }
        value += peak;
        product *= total;
        if (n % 16 == 15) { value += log(product); product = 1; }
    }
    for (int i = 0; i < blocks; i++) {
        sums[p->num_rows * blocks + i].level = to0[i];
        sums[p->num_rows * blocks + i].slope = to1[i];
    }
    return value + log(product);
}

static double likelihood(const Problem *p, int blocks, const Lanes *start, double slope) {
    switch (blocks) { /* so that the compiler unrolls the usual sizes */
        case 1: return rows_likelihood(p, 1, start, slope);
        case 2: return rows_likelihood(p, 2, start, slope);
        case 3: return rows_likelihood(p, 3, start, slope);
        case 4: return rows_likelihood(p, 4, start, slope);
        case 12: return rows_likelihood(p, 12, start, slope);
        case 16: return rows_likelihood(p, 16, start, slope);
        default: return rows_likelihood(p, blocks, start, slope);
    }
}

/* Up to a constant; the gradient has the order of the weights. */
double log_density(const Problem *p, const double *w, double *gradient) {
    const int H = p->num_hidden, M = p->num_nodes, blocks = M / LANES;
    const double *b = w, *a = w + H, *c = w + 2 * H, *v = w + 3 * H + 1;
    static Lanes start[MOST_BLOCKS];
    double slope;
    jumps(p, w, blocks, start, &slope);
    double value = likelihood(p, blocks, start, slope);
    const float *values = (const float *)sums;
    const float *end = values + p->num_rows * blocks * 2 * LANES;
    double all0 = 0, all1 = 0, allz = 0;
    for (int m = 0; m < M; m++) {
        const float *at = end + m / LANES * 2 * LANES + m % LANES;
        all0 += at[0];
        all1 += at[LANES];
        allz += at[0] * p->nodes[m];
    }
    gradient[3 * H] = all0;
    for (int k = 0; k < H; k++) {
        float below0 = 0, below1 = 0, belowz = 0;
        for (int m = 0; m < M; m++) {
            const int place = first[k][m] * blocks + m / LANES;
            const float *at = values + (place * 2 * LANES + m % LANES);
            below0 += at[0];
            below1 += at[LANES];
            belowz += at[0] * p->nodes[m];
        }
        const int rises = a[k] > -TINY;
        const double whole = rises ? 1 : SLOPE, part = rises ? SLOPE - 1 : 1 - SLOPE;
        const double s0 = whole * all0 + part * below0, s1 = whole * all1 + part * below1;
        const double sz = whole * allz + part * belowz;
        gradient[k] = v[k] * s0;
        gradient[H + k] = v[k] * s1;
        gradient[2 * H + k] = v[k] * sz;
        gradient[3 * H + 1 + k] = b[k] * s0 + a[k] * s1 + c[k] * sz;
    }
    for (int i = 0; i < 4 * H + 1; i++) {
        value -= 0.5 * w[i] * w[i] / p->prior_variance;
        gradient[i] -= w[i] / p->prior_variance;
    }
    return value;
}
