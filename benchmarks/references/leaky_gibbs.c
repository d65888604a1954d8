/* Gibbs sweeps of a network with one hidden layer of leaky ReLU: see gibbs.py, which has
   the same moves in NumPy. Here z and the hidden nodes move, not the output weights. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SIDE 65 /* at least hidden nodes + 1 */
#define LEAK 0.01

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
        const double kink = -offset / ck, on = v[k] * (ck < 0 ? 1 : LEAK);
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
            const double jump = v[k] * (ck < 0 ? LEAK - 1 : 1 - LEAK);
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
        out[n] = before > 0 ? before : LEAK * before;
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
