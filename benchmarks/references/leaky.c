/* Log posterior of a network with one hidden layer of leaky ReLU, one input and one
   latent z that is integrated out over given nodes; its gradient; leapfrogs; and Gibbs
   sweeps.

   At a value of z, each hidden node is off on one side of a threshold of x and on at the
   other. With the rows sorted by x, outputs at all rows are running sums of what changes
   at the thresholds, and the gradient is differences of running sums. So a gradient
   costs rows x nodes + nodes x hidden steps instead of rows x nodes x hidden.

   Weights are in the order of ncai.model.networks.FlatNetwork: hidden biases b, input
   weights a, latent weights c, the output bias d, output weights v. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
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

/* Coordinates in which the likelihood is far less stiff, and leapfrogs in them.

   Given the hidden nodes h_k, the function is linear in the output weights v and the
   output bias. A few of its components, B' v with B[k, j] = <h_k, phi_j> for smooth
   functions phi_j of x and z, are known far better than anything else. With
   C = I + strength B B' and values t of these components,

       v = A nu + strength A A' B t,   A A' = C^-1,

   so that nu would have the covariance prior_variance I if these components were all
   that is observed, whatever the hidden nodes are. A is a product of symmetric matrices
   T_j = I + g(n_j) e_j e_j', with e_j = T_(j-1) ... T_0 B_j and n_j = |e_j|^2, and
   log |A| = -sum_j log(1 + strength n_j) / 2 belongs to the density of the coordinates. */

#define MOST_PARTS 24
#define WIDTH (MOST_HIDDEN + 1)

typedef struct {
    int num_parts, num_points; /* points: a multiple of LANES, by padding */
    const float *inputs, *latents; /* where the inner products are computed */
    const float *parts; /* [parts, points]: phi_j and the weight of the point */
    const double *values; /* t, and behind it <1, phi_j> for the output bias */
    double strength;
} Frame;

typedef double Vector[WIDTH];

static double dot(int size, const double *a, const double *b) {
    double sum = 0;
    for (int i = 0; i < size; i++) sum += a[i] * b[i];
    return sum;
}

static void add(int size, double *to, double scale, const double *what) {
    for (int i = 0; i < size; i++) to[i] += scale * what[i];
}

/* Inner products: products[j][0] of the bias, products[j][1 + k] of hidden node k. */
static void inner_products(const Frame *f, const Problem *p, const double *w,
                           Vector *products) {
    const int H = p->num_hidden, blocks = f->num_points / LANES;
    const Lanes *x = (const Lanes *)f->inputs, *z = (const Lanes *)f->latents;
    const Lanes *parts = (const Lanes *)f->parts;
    for (int j = 0; j < f->num_parts; j++) products[j][0] = f->values[f->num_parts + j];
    for (int k = 0; k < H; k++) {
        const float b = (float)w[k], a = (float)w[H + k], c = (float)w[2 * H + k];
        Lanes sum[MOST_PARTS];
        memset(sum, 0, f->num_parts * sizeof(Lanes));
        for (int q = 0; q < blocks; q++) {
            const Lanes before = b + a * x[q] + c * z[q];
            const Lanes after = larger(before, (float)SLOPE * before);
            for (int j = 0; j < f->num_parts; j++) sum[j] += after * parts[j * blocks + q];
        }
        for (int j = 0; j < f->num_parts; j++) products[j][1 + k] = total_of(sum[j]);
    }
}

/* Add to the gradient by the hidden weights, given that by the inner products. */
static void to_hidden(const Frame *f, const Problem *p, const double *w,
                      const Vector *by_product, double *gradient) {
    const int H = p->num_hidden, blocks = f->num_points / LANES;
    const Lanes *x = (const Lanes *)f->inputs, *z = (const Lanes *)f->latents;
    const Lanes *parts = (const Lanes *)f->parts;
    for (int k = 0; k < H; k++) {
        const float b = (float)w[k], a = (float)w[H + k], c = (float)w[2 * H + k];
        Lanes to_b = x[0] * 0, to_a = to_b, to_c = to_b;
        for (int q = 0; q < blocks; q++) {
            const Lanes before = b + a * x[q] + c * z[q];
            Lanes by = x[0] * 0;
            for (int j = 0; j < f->num_parts; j++)
                by += (float)by_product[j][1 + k] * parts[j * blocks + q];
            const Whole on = before > 0;
            by = (Lanes)(((Whole)by & on) | ((Whole)(by * (float)SLOPE) & ~on));
            to_b += by;
            to_a += by * x[q];
            to_c += by * z[q];
        }
        gradient[k] += total_of(to_b);
        gradient[H + k] += total_of(to_a);
        gradient[2 * H + k] += total_of(to_c);
    }
}

typedef struct { /* the matrices T_j, and what is collected for their gradient */
    int size, num;
    double strength;
    Vector e[MOST_PARTS], to_e[MOST_PARTS];
    double n[MOST_PARTS], g[MOST_PARTS], slope[MOST_PARTS], to_n[MOST_PARTS];
} Factors;

static void apply(const Factors *t, int j, double *u) {
    add(t->size, u, t->g[j] * dot(t->size, t->e[j], u), t->e[j]);
}

/* From the gradient by T_j u to that by u, in place. */
static void apply_back(Factors *t, int j, const double *u, double *by) {
    const double s = dot(t->size, t->e[j], u), r = dot(t->size, t->e[j], by);
    add(t->size, t->to_e[j], t->g[j] * s, by);
    add(t->size, t->to_e[j], t->g[j] * r, u);
    t->to_n[j] += t->slope[j] * s * r;
    add(t->size, by, t->g[j] * r, t->e[j]);
}

/* Log density of the coordinates (hidden weights, then nu of the bias and of v). */
double frame_density(const Problem *p, const Frame *f, const double *position,
                     double *weights, double *gradient) {
    static Vector products[MOST_PARTS], by_product[MOST_PARTS];
    static Vector trail[MOST_PARTS][MOST_PARTS], offsets[MOST_PARTS + 1], outs[MOST_PARTS];
    static Factors t;
    const int H = p->num_hidden, size = H + 1, num = f->num_parts, all = 4 * H + 1;
    double log_volume = 0;
    t.size = size, t.num = num, t.strength = f->strength;
    memcpy(weights, position, all * sizeof(double));
    inner_products(f, p, weights, products);
    memset(offsets[0], 0, sizeof(Vector));
    memset(t.to_e, 0, sizeof(t.to_e));
    for (int j = 0; j < num; j++) {
        memcpy(t.e[j], products[j], sizeof(Vector));
        for (int i = 0; i < j; i++) {
            memcpy(trail[j][i], t.e[j], sizeof(Vector));
            apply(&t, i, t.e[j]);
        }
        const double n = t.n[j] = dot(size, t.e[j], t.e[j]) + 1e-12;
        const double whole = 1 + f->strength * n;
        t.g[j] = (1 / sqrt(whole) - 1) / n;
        t.slope[j] = (-0.5 * f->strength / (whole * sqrt(whole)) - t.g[j]) / n;
        t.to_n[j] = -0.5 * f->strength / whole;
        log_volume -= 0.5 * log(whole);
        add(size, offsets[0], f->strength * f->values[j], products[j]);
    }
    for (int j = 0; j < num; j++) {
        memcpy(offsets[j + 1], offsets[j], sizeof(Vector));
        apply(&t, j, offsets[j + 1]);
    }
    double *v = weights + 3 * H;
    add(size, v, 1, offsets[num]);
    for (int j = num - 1; j >= 0; j--) {
        memcpy(outs[j], v, size * sizeof(double));
        apply(&t, j, v);
    }
    double value = log_density(p, weights, gradient) + log_volume;

    double *by = gradient + 3 * H;
    for (int j = 0; j < num; j++) apply_back(&t, j, outs[j], by);
    Vector back;
    memcpy(back, by, size * sizeof(double));
    for (int j = num - 1; j >= 0; j--) apply_back(&t, j, offsets[j], back);
    for (int j = num - 1; j >= 0; j--) {
        double *to = by_product[j];
        memcpy(to, t.to_e[j], sizeof(Vector));
        add(size, to, 2 * t.to_n[j], t.e[j]);
        for (int i = j - 1; i >= 0; i--) apply_back(&t, i, trail[j][i], to);
        add(size, to, f->strength * f->values[j], back);
    }
    to_hidden(f, p, position, by_product, gradient);
    return value;
}

static double density_of(const Problem *p, const Frame *f, const double *position,
                         double *gradient) {
    double weights[4 * MOST_HIDDEN + 1];
    if (f) return frame_density(p, f, position, weights, gradient);
    return log_density(p, position, gradient);
}

/* Leapfrogs in place, with the identity as the mass; the log density at the end, and the
   change of the energy. Without a frame the position is the weights. */
double trajectory(const Problem *p, const Frame *f, double *position, double *momentum,
                  double *gradient, double step, int num_steps, double density,
                  double *end_density) {
    const int size = 4 * p->num_hidden + 1;
    const double start = 0.5 * dot(size, momentum, momentum) - density;
    for (int t = 0; t < num_steps; t++) {
        add(size, momentum, 0.5 * step, gradient);
        add(size, position, step, momentum);
        density = density_of(p, f, position, gradient);
        add(size, momentum, 0.5 * step, gradient);
        if (!(density > -1e7)) break; /* it has diverged */
    }
    *end_density = density;
    return 0.5 * dot(size, momentum, momentum) - density - start;
}

/* Gibbs sweeps. Given W, each z is piecewise Gaussian. Given z and the hidden nodes, the
   output weights are Gaussian, so that hidden nodes move with these integrated out. */

#define SIDE (MOST_HIDDEN + 1)

/* xoshiro256+ (Blackman and Vigna), and what is drawn with it. */
static uint64_t next(uint64_t *s) {
    const uint64_t result = s[0] + s[3], t = s[1] << 17;
    s[2] ^= s[0]; s[3] ^= s[1]; s[1] ^= s[2]; s[0] ^= s[3];
    s[2] ^= t;
    s[3] = (s[3] << 45) | (s[3] >> 19);
    return result;
}

static double uniform(uint64_t *s) { /* above 0, below 1 */
    return ((next(s) >> 11) + 0.5) * 0x1p-53;
}

static double normal(uint64_t *s) {
    const double radius = sqrt(-2 * log(uniform(s)));
    return radius * cos(6.283185307179586 * uniform(s));
}

/* log(Phi(high) - Phi(low)) for low < high and low <= 0. */
static double log_mass(double low, double high) {
    const double root = 0.7071067811865476;
    const double mass = 0.5 * (erfc(-high * root) - erfc(-low * root));
    if (mass > 1e-290) return log(mass);
    if (high > -30) return -1e300; /* an empty piece */
    return -0.5 * high * high - log(-high) - 0.9189385332046727 +
           log(-expm1(0.5 * (high - low) * (high + low)) + 1e-300);
}

/* A standard normal in [low, high] for low <= 0, by rejection. */
static double truncated(uint64_t *s, double low, double high) {
    if (high < -0.5) { /* in the tail: exponential proposals (Robert, 1995) */
        const double start = -high, width = high - low;
        const double rate = 0.5 * (start + sqrt(start * start + 4));
        for (;;) {
            const double cut = isinf(low) ? 1 : -expm1(-rate * width);
            const double t = start - log1p(-uniform(s) * cut) / rate;
            if (uniform(s) < exp(-0.5 * (t - rate) * (t - rate))) return -t;
        }
    }
    if (high - low < 1) {
        const double nearest = high < 0 ? high : 0;
        for (;;) {
            const double t = low + (high - low) * uniform(s);
            if (log(uniform(s)) < 0.5 * (nearest * nearest - t * t)) return t;
        }
    }
    for (;;) {
        const double t = normal(s);
        if (t >= low && t <= high) return t;
    }
}

static double draw_latent(uint64_t *s, double x, double y, int H, const double *w,
                          double noise_var) {
    const double *b = w, *a = w + H, *c = w + 2 * H, *v = w + 3 * H + 1;
    double kinks[SIDE + 1], lows[SIDE], highs[SIDE], means[SIDE], widths[SIDE];
    double logs[SIDE], level = w[3 * H], slope = 0, top = -INFINITY, total = 0;
    int order[SIDE], flips[SIDE];
    for (int k = 0; k < H; k++) {
        const double ck = fabs(c[k]) < 1e-12 ? 1e-12 : c[k], offset = b[k] + a[k] * x;
        const double kink = -offset / ck, on = v[k] * (ck < 0 ? 1 : SLOPE);
        int place = k;
        for (; place && kinks[place - 1] > kink; place--) {
            kinks[place] = kinks[place - 1];
            order[place] = order[place - 1];
        }
        kinks[place] = kink;
        order[place] = k;
        level += on * offset;
        slope += on * ck;
    }
    kinks[H] = INFINITY;
    for (int i = 0; i <= H; i++) {
        const double precision = 1 + slope * slope / noise_var, error = y - level;
        const double mean = slope * error / noise_var / precision;
        const double width = 1 / sqrt(precision);
        double low = i ? (kinks[i - 1] - mean) / width : -INFINITY;
        double high = (kinks[i] - mean) / width;
        flips[i] = low > 0;
        if (flips[i]) { const double t = low; low = -high; high = -t; }
        logs[i] = 0.5 * (precision * mean * mean - error * error / noise_var) + log(width)
                  + (high > low ? log_mass(low, high) : -1e300);
        lows[i] = low, highs[i] = high, means[i] = mean, widths[i] = width;
        if (logs[i] > top) top = logs[i];
        if (i < H) {
            const int k = order[i];
            const double ck = fabs(c[k]) < 1e-12 ? 1e-12 : c[k];
            const double jump = v[k] * (ck < 0 ? SLOPE - 1 : 1 - SLOPE);
            level += jump * (b[k] + a[k] * x);
            slope += jump * ck;
        }
    }
    for (int i = 0; i <= H; i++) total += logs[i] = exp(logs[i] - top);
    double left = uniform(s) * total;
    int i = 0;
    while (i < H && left > logs[i]) left -= logs[i++];
    const double t = truncated(s, lows[i], highs[i]);
    return means[i] + widths[i] * (flips[i] ? -t : t);
}

void draw_latents(const double *x, const double *y, int N, int H, const double *w,
                  double noise_var, uint64_t *s, double *z) {
    for (int n = 0; n < N; n++) z[n] = draw_latent(s, x[n], y[n], H, w, noise_var);
}

typedef struct {
    int N, H;
    const double *x, *z, *y;
    double *features; /* [H + 1, N] */
    double gram[SIDE][SIDE], moment[SIDE], noise_var, prior_var;
    double lower[SIDE][SIDE], half[SIDE]; /* of all features but one */
    int index[SIDE];
} State;

static void feature(const State *t, const double *in, double *out) {
    for (int n = 0; n < t->N; n++) {
        const double before = in[0] + in[1] * t->x[n] + in[2] * t->z[n];
        out[n] = before > 0 ? before : SLOPE * before;
    }
}

static double product(int N, const double *a, const double *b) {
    double sum = 0;
    for (int n = 0; n < N; n++) sum += a[n] * b[n];
    return sum;
}

/* Cholesky factor of the precision of the output weights without one feature. */
static void factor_without(State *t, int left_out) {
    int count = 0;
    for (int i = 0; i <= t->H; i++) if (i != left_out) t->index[count++] = i;
    for (int i = 0; i < count; i++) {
        for (int j = 0; j <= i; j++) {
            double sum = t->gram[t->index[i]][t->index[j]] / t->noise_var;
            if (i == j) sum += 1 / t->prior_var;
            sum -= product(j, t->lower[i], t->lower[j]);
            t->lower[i][j] = i == j ? sqrt(sum) : sum / t->lower[j][j];
        }
        const double sum = t->moment[t->index[i]] / t->noise_var;
        t->half[i] = (sum - product(i, t->lower[i], t->half)) / t->lower[i][i];
    }
}

/* Log p(y | hidden, z), up to what the other features alone say. */
static double value_of(const State *t, const double *column, double own, double moment) {
    double u[SIDE];
    for (int i = 0; i < t->H; i++) {
        const double sum = column[t->index[i]] / t->noise_var;
        u[i] = (sum - product(i, t->lower[i], u)) / t->lower[i][i];
    }
    const double rest = own / t->noise_var + 1 / t->prior_var - product(t->H, u, u);
    const double last = moment / t->noise_var - product(t->H, u, t->half);
    return 0.5 * last * last / rest - 0.5 * log(rest);
}

static void columns(const State *t, int node, const double *out, double *column,
                    double *own, double *moment) {
    for (int i = 0; i <= t->H; i++)
        if (i != node + 1) column[i] = product(t->N, t->features + i * t->N, out);
    *own = product(t->N, out, out);
    *moment = product(t->N, out, t->y);
}

static void slice_node(State *t, uint64_t *s, int node, double *w, double *out) {
    const int H = t->H;
    double here[3] = {w[node], w[H + node], w[2 * H + node]}, other[3], there[3];
    double column[SIDE], own, moment;
    factor_without(t, node + 1);
    double value = value_of(t, t->gram[node + 1], t->gram[node + 1][node + 1],
                            t->moment[node + 1]);
    for (int i = 0; i < 3; i++) other[i] = sqrt(t->prior_var) * normal(s);
    const double threshold = value + log(uniform(s));
    double angle = 6.283185307179586 * uniform(s), low = angle - 6.283185307179586;
    double high = angle;
    while (high - low > 1e-10) {
        for (int i = 0; i < 3; i++) there[i] = here[i] * cos(angle) + other[i] * sin(angle);
        feature(t, there, out);
        columns(t, node, out, column, &own, &moment);
        if (value_of(t, column, own, moment) > threshold) {
            for (int i = 0; i < 3; i++) w[i * H + node] = there[i];
            memcpy(t->features + (node + 1) * t->N, out, t->N * sizeof(double));
            column[node + 1] = own;
            for (int i = 0; i <= H; i++)
                t->gram[node + 1][i] = t->gram[i][node + 1] = column[i];
            t->moment[node + 1] = moment;
            return;
        }
        if (angle < 0) low = angle; else high = angle;
        angle = low + (high - low) * uniform(s);
    }
}

/* Move all hidden nodes, in random order, with the output weights integrated out; gram
   [SIDE, SIDE] and moment are those of the features at the end. */
void slice_nodes(const double *x, const double *z, const double *y, int N, int H,
                 double noise_var, double prior_var, int passes, double *w, uint64_t *s,
                 double *gram, double *moment) {
    static State t;
    double *out = malloc(N * sizeof(double));
    t.N = N, t.H = H, t.x = x, t.y = y, t.z = z;
    t.noise_var = noise_var, t.prior_var = prior_var;
    t.features = malloc((H + 1) * N * sizeof(double));
    for (int n = 0; n < N; n++) t.features[n] = 1;
    for (int k = 0; k < H; k++) {
        const double in[3] = {w[k], w[H + k], w[2 * H + k]};
        feature(&t, in, t.features + (k + 1) * N);
    }
    for (int i = 0; i <= H; i++) {
        for (int j = 0; j <= i; j++)
            t.gram[i][j] = t.gram[j][i] = product(N, t.features + i * N, t.features + j * N);
        t.moment[i] = product(N, t.features + i * N, y);
    }
    for (int pass = 0; pass < passes; pass++) {
        int order[SIDE];
        for (int k = 0; k < H; k++) {
            const int place = (int)(uniform(s) * (k + 1));
            order[k] = order[place];
            order[place] = k;
        }
        for (int k = 0; k < H; k++) slice_node(&t, s, order[k], w, out);
    }
    memcpy(gram, t.gram, sizeof(t.gram));
    memcpy(moment, t.moment, sizeof(t.moment));
    free(t.features);
    free(out);
}
