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

#include "leaky_density.c"

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
