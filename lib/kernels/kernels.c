// The small operations of a block and of the head, each as one pass over memory. At the widths that a core trains, ten
// passes of a framework cost more than the matrix products between them. lib/kernels/functions.py compiles this on
// the machine that runs it.
//
// T is the type of activations, float or bf16 (-DBF16); everything is computed in fp32, and a nan stays one. B batch,
// S sequence, H heads, D head_dim, d width, V vocabulary. In attention the numbers of a vector are positions (`turned`
// panels, [D][S]) or channels (panels, [S][D]), so that no sum runs across a vector, and the width of the machine's
// vectors decides no number.

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef BF16
typedef uint16_t T;
static inline float get(T x) {
  uint32_t bits = (uint32_t)x << 16;
  float y;
  memcpy(&y, &bits, 4);
  return y;
}
static inline T put(float x) {  // to the nearest, ties to even
  uint32_t bits;
  memcpy(&bits, &x, 4);
  uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded;
}
#else
typedef float T;
static inline float get(T x) { return x; }
static inline T put(float x) { return x; }
#endif

#define SIMD _Pragma("omp simd")
#define SUM _Pragma("omp simd reduction(+ : sum)")

static inline float exp_(float given) {  // Cephes: 2^n e^r, |r| <= ln 2 / 2; 0 below e^-87, so that nothing is denormal
  float x = given < -87.0f ? -87.0f : given > 88.0f ? 88.0f : given;
  float n = x * 1.44269504088896341f + 12582912.0f;  // + 1.5 2^23 rounds to an integer
  n -= 12582912.0f;
  float r = x - n * 0.693359375f + n * 2.12194440e-4f;
  float y = 1.9875691500e-4f * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * r * r + r + 1.0f;
  int32_t power = ((int32_t)n + 127) << 23;
  float scale;
  memcpy(&scale, &power, 4);
  return given < -87.0f ? 0.0f : y * scale;
}

static inline float tanh_(float x) {  // Cephes
  float z = x * x;
  float y = -5.70498872745e-3f * z + 2.06390887954e-2f;
  y = y * z - 5.37397155531e-2f;
  y = y * z + 1.33314422036e-1f;
  y = y * z - 3.33332819422e-1f;
  y = y * z * x + x;
  return z < 0.390625f ? y : 1.0f - 2.0f / (exp_(2.0f * x) + 1.0f);
}

// ---- norm: y = x r w, r = 1 / sqrt(mean(x^2) + eps); w may be absent ----------------------------------------------

void norm(const float *restrict x, const float *restrict w, T *restrict y, float *restrict r, long rows, long d, float eps) {
  for (long t = 0; t < rows; t++, x += d, y += d) {
    float sum = 0;
    SUM for (long i = 0; i < d; i++) sum += x[i] * x[i];
    float s = r[t] = 1.0f / sqrtf(sum / d + eps);
    if (w)
      SIMD for (long i = 0; i < d; i++) y[i] = put(x[i] * s * w[i]);
    else
      SIMD for (long i = 0; i < d; i++) y[i] = put(x[i] * s);
  }
}

// dx = r (g w - x r^2 mean(g w x)); where there is a w, dw += g x r
void norm_backward(const T *restrict g, const float *restrict x, const float *restrict w, const float *restrict r,
                   float *restrict dx, float *restrict dw, long rows, long d) {
  for (long t = 0; t < rows; t++, x += d, g += d, dx += d) {
    float sum = 0, rt = r[t];
    if (w) {
      SUM for (long i = 0; i < d; i++) sum += get(g[i]) * w[i] * x[i];
      float s = sum * rt * rt / d;
      SIMD for (long i = 0; i < d; i++) {
        float gi = get(g[i]);
        dx[i] = rt * (gi * w[i] - x[i] * s);
        dw[i] += gi * x[i] * rt;
      }
    } else {
      SUM for (long i = 0; i < d; i++) sum += get(g[i]) * x[i];
      float s = sum * rt * rt / d;
      SIMD for (long i = 0; i < d; i++) dx[i] = rt * (get(g[i]) - x[i] * s);
    }
  }
}

// ---- MLPs ----------------------------------------------------------------------------------------------------------

void relu2(const T *restrict x, T *restrict y, long n) {
  SIMD for (long i = 0; i < n; i++) {
    float u = get(x[i]);
    u = u < 0 ? 0 : u;
    y[i] = put(u * u);
  }
}

void relu2_backward(const T *restrict g, const T *restrict x, T *restrict dx, long n) {
  SIMD for (long i = 0; i < n; i++) {
    float u = get(x[i]);
    u = u < 0 ? 0 : u;
    dx[i] = put(2 * u * get(g[i]));
  }
}

// silu(gate) up, silu(z) = z s, s = 1 / (1 + e^-z)
void swiglu(const T *restrict gate, const T *restrict up, T *restrict y, long n) {
  SIMD for (long i = 0; i < n; i++) {
    float z = get(gate[i]);
    y[i] = put(z / (1.0f + exp_(-z)) * get(up[i]));
  }
}

void swiglu_backward(const T *restrict g, const T *restrict gate, const T *restrict up, T *restrict dgate,
                     T *restrict dup, long n) {
  SIMD for (long i = 0; i < n; i++) {
    float z = get(gate[i]), s = 1.0f / (1.0f + exp_(-z)), own = get(g[i]);
    dgate[i] = put(own * get(up[i]) * s * (1.0f + z * (1.0f - s)));
    dup[i] = put(own * z * s);
  }
}

// ---- head ----------------------------------------------------------------------------------------------------------

// Cross-entropies of c tanh(z / c), z [rows, V], into `losses`; c = 0: no cap. Where z is to become its gradient it is
// overwritten by scale (softmax - onehot) (1 - tanh^2).
void cross_entropy(T *restrict z, const int64_t *restrict target, float *restrict losses, long rows, long V, float c,
                   float scale, int gradient) {
  float *restrict cap = malloc(2 * V * sizeof(float)), *restrict slope = cap + V;
  for (long t = 0; t < rows; t++, z += V) {
    float top = -INFINITY, sum = 0;
    if (c)
      SIMD for (long i = 0; i < V; i++) {
        float th = tanh_(get(z[i]) / c);
        cap[i] = c * th;
        slope[i] = 1.0f - th * th;
      }
    else
      SIMD for (long i = 0; i < V; i++) cap[i] = get(z[i]);
#pragma omp simd reduction(max : top)
    for (long i = 0; i < V; i++) top = cap[i] > top ? cap[i] : top;
    float own = cap[target[t]];
    SUM for (long i = 0; i < V; i++) {
      cap[i] = exp_(cap[i] - top);
      sum += cap[i];
    }
    losses[t] = logf(sum) + top - own;
    if (!gradient) continue;
    float each = scale / sum;
    cap[target[t]] -= sum;
    if (c)
      SIMD for (long i = 0; i < V; i++) z[i] = put(cap[i] * slope[i] * each);
    else
      SIMD for (long i = 0; i < V; i++) z[i] = put(cap[i] * each);
  }
  free(cap);
}

// ---- attention -----------------------------------------------------------------------------------------------------

// WIDE, the numbers of a vector, is what the machine has: GCC keeps wider ones in memory, and a product with those takes
// some fifteen times as long
#ifndef WIDE
#if defined(__AVX512F__)
#define WIDE 16
#elif defined(__AVX__)
#define WIDE 8
#else
#define WIDE 4
#endif
#endif
// ROWS of a tile: two vectors of sums each, which stay in registers beside two vectors of B and one of A. There are 32
// registers with AVX-512 and on Arm, elsewhere 16; and with fewer than ten sums a core waits for its own multiply-adds
#ifndef ROWS
#if defined(__AVX512F__) || defined(__aarch64__)
#define ROWS 8
#else
#define ROWS 6
#endif
#endif
enum { L = 16, I = 32 };  // columns of a narrow panel; of a wide one, queries that are worked on at once
typedef float vec __attribute__((vector_size(4 * WIDE)));

static inline vec load(const float *x) {
  vec y;
  memcpy(&y, x, sizeof y);
  return y;
}
static inline void store(float *x, vec y) { memcpy(x, &y, sizeof y); }

// C [rows][vecs WIDE] (+)= A [rows][K] B [K][vecs WIDE]; a number of A is at m am + k ak. `rows` and `vecs` are constants
// where this is used, so that the sums stay in registers
static inline __attribute__((always_inline)) void tile(const int rows, const int vecs, long K, const float *A, long am,
                                                       long ak, const float *B, long ldb, float *C, long ldc, int add) {
  vec c[ROWS][2];
#pragma GCC unroll 8
  for (int m = 0; m < rows; m++)
#pragma GCC unroll 2
    for (int n = 0; n < vecs; n++) c[m][n] = add ? load(C + m * ldc + n * WIDE) : (vec){0};
#pragma GCC unroll 2  // counting takes the front of a core long enough to be seen in narrow tiles
  for (long k = 0; k < K; k++, A += ak, B += ldb) {
    vec b[2];
#pragma GCC unroll 2
    for (int n = 0; n < vecs; n++) b[n] = load(B + n * WIDE);
#pragma GCC unroll 8
    for (int m = 0; m < rows; m++)
#pragma GCC unroll 2
      for (int n = 0; n < vecs; n++) c[m][n] += A[m * am] * b[n];
  }
#pragma GCC unroll 8
  for (int m = 0; m < rows; m++)
#pragma GCC unroll 2
    for (int n = 0; n < vecs; n++) store(C + m * ldc + n * WIDE, c[m][n]);
}

// `tile` down the rows from m on, as often as it fits; the first row that is left
static inline __attribute__((always_inline)) long tiles(const int rows, long m, long M, int vecs, long K, const float *A,
                                                        long am, long ak, const float *B, long ldb, float *C, long ldc,
                                                        int add) {
  for (; m + rows <= M; m += rows)
    if (vecs == 1)
      tile(rows, 1, K, A + m * am, am, ak, B, ldb, C + m * ldc, ldc, add);
    else
      tile(rows, 2, K, A + m * am, am, ak, B, ldb, C + m * ldc, ldc, add);
  return m;
}

// C [M][N] (+)= A [M][K] B [K][N], N = L or I. Of the last rows as many at once as can be: one row takes as long as four
static void product(long M, long N, long K, const float *A, long am, long ak, const float *B, long ldb, float *C, long ldc,
                    int add) {
  for (long n = 0; n < N; n += 2 * WIDE) {
    int vecs = L < 2 * WIDE && N - n < 2 * WIDE ? 1 : 2;
    long m = tiles(ROWS, 0, M, vecs, K, A, am, ak, B + n, ldb, C + n, ldc, add);
    m = tiles(4, m, M, vecs, K, A, am, ak, B + n, ldb, C + n, ldc, add);
    m = tiles(2, m, M, vecs, K, A, am, ak, B + n, ldb, C + n, ldc, add);
    tiles(1, m, M, vecs, K, A, am, ak, B + n, ldb, C + n, ldc, add);
  }
}

// GCC has shufflevector from 12 on, and its own from the first
#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t places __attribute__((vector_size(4 * WIDE)));
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (places){__VA_ARGS__})
#endif

// The numbers of `lo` and `hi` of each pair of rows s apart change places: of a square of rows, in rounds, a transpose
#define ROUND(x, y, s, lo, hi)                                               \
  _Pragma("GCC unroll 16") for (int i = 0; i < WIDE; i++) if (!(i & s)) {    \
    y[i] = SHUFFLE(x[i], x[i + s], lo);                                      \
    y[i + s] = SHUFFLE(x[i], x[i + s], hi);                                  \
  }
// The same with sums in place of the pairs: what is left in x[0] is the sum of each row, all added up in the same order
#define FOLD(x, s, lo, hi)                                           \
  _Pragma("GCC unroll 8") for (int i = 0; i < s; i++) x[i] =         \
      SHUFFLE(x[i], x[i + s], lo) + SHUFFLE(x[i], x[i + s], hi);
#if WIDE == 16
#define LO8 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define HI8 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
#define LO4 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27
#define HI4 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31
#define LO2 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define HI2 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define LO1 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define HI1 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31
#define ROUNDS(x, y) ROUND(x, y, 8, LO8, HI8) ROUND(y, x, 4, LO4, HI4) ROUND(x, y, 2, LO2, HI2) ROUND(y, x, 1, LO1, HI1)
#define FOLDS(x) FOLD(x, 8, LO8, HI8) FOLD(x, 4, LO4, HI4) FOLD(x, 2, LO2, HI2) FOLD(x, 1, LO1, HI1)
#elif WIDE == 8
#define LO4 0, 1, 2, 3, 8, 9, 10, 11
#define HI4 4, 5, 6, 7, 12, 13, 14, 15
#define LO2 0, 1, 8, 9, 4, 5, 12, 13
#define HI2 2, 3, 10, 11, 6, 7, 14, 15
#define LO1 0, 8, 2, 10, 4, 12, 6, 14
#define HI1 1, 9, 3, 11, 5, 13, 7, 15
#define ROUNDS(x, y) ROUND(x, y, 4, LO4, HI4) ROUND(y, x, 2, LO2, HI2) ROUND(x, y, 1, LO1, HI1) memcpy(x, y, sizeof x);
#define FOLDS(x) FOLD(x, 4, LO4, HI4) FOLD(x, 2, LO2, HI2) FOLD(x, 1, LO1, HI1)
#else
#define LO2 0, 1, 4, 5
#define HI2 2, 3, 6, 7
#define LO1 0, 4, 2, 6
#define HI1 1, 5, 3, 7
#define ROUNDS(x, y) ROUND(x, y, 2, LO2, HI2) ROUND(y, x, 1, LO1, HI1)
#define FOLDS(x) FOLD(x, 2, LO2, HI2) FOLD(x, 1, LO1, HI1)
#endif

// y [m] = the products of x [K] with vectors of W that are `stride` apart; K is a multiple of L, and y has room for whole
// vectors of products
static void dots(const float *x, const float *W, long stride, float *y, long K, long m) {
  for (long j = 0; j < m; j += WIDE) {
    vec each[WIDE];
#pragma GCC unroll 16
    for (int i = 0; i < WIDE; i++) {
      const float *w = W + (j + i < m ? j + i : m - 1) * stride;
      vec part[L / WIDE] = {0};
      for (long k = 0; k < K; k += L)
#pragma GCC unroll 4
        for (int n = 0; n < L / WIDE; n++) part[n] += load(x + k + n * WIDE) * load(w + k + n * WIDE);
      for (int n = L / WIDE; n /= 2;)
        for (int l = 0; l < n; l++) part[l] += part[l + n];
      each[i] = part[0];
    }
    FOLDS(each)
    store(y + j, each[0]);
  }
}

// to [columns][rows] = from [rows][columns]
static void turn(const float *restrict from, long ldf, float *restrict to, long ldt, long rows, long columns) {
  for (long r = 0; r < rows; r += WIDE)
    for (long c = 0; c < columns; c += WIDE) {
      long m = rows - r < WIDE ? rows - r : WIDE, n = columns - c < WIDE ? columns - c : WIDE;
      if (m == WIDE && n == WIDE) {
        vec x[WIDE], y[WIDE];
#pragma GCC unroll 16
        for (int i = 0; i < WIDE; i++) x[i] = load(from + (r + i) * ldf + c);
        ROUNDS(x, y)
#pragma GCC unroll 16
        for (int i = 0; i < WIDE; i++) store(to + (c + i) * ldt + r, x[i]);
      } else
        for (long i = 0; i < m; i++)
          for (long j = 0; j < n; j++) to[(c + j) * ldt + r + i] = from[(r + i) * ldf + c + j];
    }
}

// C [M][N] = A [M][K] B [K][N], or that added to it, where a number of A is at m am + k ak and one of B at k bk + n bn, one
// of bk and bn being 1, and rows of C are ldc apart. B is laid out anew, a panel of I columns and at most DEEP rows at a
// time, which then stays in the cache next to the core. `lower`: nothing right of the diagonal's squares of L is computed
enum { DEEP = 256 };
static void multiply(const float *A, long am, long ak, const float *B, long bk, long bn, float *C, long ldc, long M, long N,
                     long K, int add, int lower) {
  static _Thread_local float panel[DEEP * I], part[64 * I];
  if (!K && !add)  // a sum of nothing
    for (long m = 0; m < M; m++) memset(C + m * ldc, 0, N * sizeof(float));
  for (long k = 0; k < K; k += DEEP)
    for (long n = 0; n < N; n += I) {
      long deep = K - k < DEEP ? K - k : DEEP, columns = N - n < I ? N - n : I, width = columns > L ? I : L;
      const float *from = B + k * bk + n * bn;
      if (columns < width) memset(panel, 0, sizeof panel);
      if (bn == 1)
        for (long r = 0; r < deep; r++) memcpy(panel + r * width, from + r * bk, columns * sizeof(float));
      else
        turn(from, bn, panel, width, columns, deep);
      if (columns == width) {
        long m = lower ? n : 0;
        if (lower && width == I) {  // the diagonal's first rows
          product(L, L, deep, A + m * am + k * ak, am, ak, panel, width, C + m * ldc + n, ldc, add || k);
          m += L;
        }
        product(M - m, width, deep, A + m * am + k * ak, am, ak, panel, width, C + m * ldc + n, ldc, add || k);
        continue;
      }
      for (long m = lower ? n : 0; m < M; m += 64) {  // whole vectors, of which some columns are kept
        long rows = M - m < 64 ? M - m : 64;
        product(rows, width, deep, A + m * am + k * ak, am, ak, panel, width, part, width, 0);
        for (long r = 0; r < rows; r++)
          for (long c = 0; c < columns; c++) {
            float *to = C + (m + r) * ldc + n + c;
            *to = part[r * width + c] + (add || k ? *to : 0);
          }
      }
    }
}

void matmul(const float *A, long am, long ak, const float *B, long bk, long bn, float *C, long ldc, long M, long N, long K,
            int add) {
  multiply(A, am, ak, B, bk, bn, C, ldc, M, N, K, add, 0);
}

typedef struct {
  long B, S, H, D;
  int half_split;  // pairs of a rotation are (j, j + D/2), otherwise (2j, 2j + 1)
  int qk_norm;     // after the rotation
  float eps;
  long window;  // a position sees itself and the window - 1 before it
} Shape;

// What all heads share: the rounded-up sizes, and cos and sin of the positions, turned
typedef struct {
  long S, D;  // multiples of I and of L
  float *cos, *sin;
} Room;

static Room room_for(const Shape *s, const float *angles) {  // angles [S, D/2, 2]
  Room room = {(s->S + I - 1) / I * I, (s->D + L - 1) / L * L, 0, 0};
  long half = s->D / 2;
  room.cos = calloc(2 * half * room.S, sizeof(float));
  room.sin = room.cos + half * room.S;
  for (long t = 0; t < s->S; t++)
    for (long j = 0; j < half; j++) {
      room.cos[j * room.S + t] = angles[2 * (t * half + j)];
      room.sin[j * room.S + t] = angles[2 * (t * half + j) + 1];
    }
  return room;
}

// A turned panel rotated by +angle (way = 1) or -angle (-1)
static void rotate(float *restrict x, const Shape *s, const Room *room, float way) {
  long half = s->D / 2, S = room->S;
  for (long j = 0; j < half; j++) {
    float *restrict a = x + (s->half_split ? j : 2 * j) * S, *restrict b = x + (s->half_split ? j + half : 2 * j + 1) * S;
    const float *restrict cos = room->cos + j * S, *restrict sin = room->sin + j * S;
    SIMD for (long t = 0; t < S; t++) {
      float old = a[t], by = way * sin[t];
      a[t] = old * cos[t] - b[t] * by;
      b[t] = b[t] * cos[t] + old * by;
    }
  }
}

// One head of x, rows `stride` apart, as a panel, and turned where that is not 0
static void panels(const T *restrict x, const T *restrict more, long stride, const Shape *s, const Room *room,
                   float *restrict panel, float *restrict turned) {
  long D = s->D, Dp = room->D;
  for (long t = 0; t < s->S; t++) {
    if (more)
      SIMD for (long i = 0; i < D; i++) panel[t * Dp + i] = get(put(get(x[t * stride + i]) + get(more[t * s->H * D + i])));
    else
      SIMD for (long i = 0; i < D; i++) panel[t * Dp + i] = get(x[t * stride + i]);
  }
  if (turned) turn(panel, Dp, turned, room->S, s->S, D);
}

// q or k of one head: rotated, normed with r [S], times `scale`; the panel is left out where it is 0
static void prepare(const T *x, long stride, const Shape *s, const Room *room, float scale, float *panel, float *turned,
                    float *restrict r, float *spare) {
  long D = s->D, S = room->S;
#ifdef BF16
  panels(x, 0, stride, s, room, spare, turned);
#else
  (void)spare;
  turn(x, stride, turned, S, s->S, D);
#endif
  rotate(turned, s, room, 1);
  for (long t = 0; t < S; t++) r[t] = 0;
  if (s->qk_norm) {
    for (long i = 0; i < D; i++)
      SIMD for (long t = 0; t < S; t++) r[t] += turned[i * S + t] * turned[i * S + t];
    SIMD for (long t = 0; t < S; t++) r[t] = 1.0f / sqrtf(r[t] / D + s->eps);
    for (long i = 0; i < D; i++)
      SIMD for (long t = 0; t < S; t++) turned[i * S + t] *= r[t] * scale;
  } else
    SIMD for (long i = 0; i < D * S; i++) turned[i] *= scale;
  if (panel) turn(turned, S, panel, room->D, D, S);
}

// The gradient dy of what `prepare` made, turned, through it into rows of dx; `spare` is a panel
static void unprepare(float *restrict dy, const float *restrict y, const float *restrict r, const Shape *s,
                      const Room *room, float scale, float *spare, T *restrict dx, long stride) {
  long D = s->D, S = room->S;
  if (s->qk_norm) {  // z = x r, y = scale z: dx = r (dz - z mean(dz z)), where dz z = dy y
    memset(spare, 0, S * sizeof(float));
    for (long i = 0; i < D; i++)
      SIMD for (long t = 0; t < S; t++) spare[t] += dy[i * S + t] * y[i * S + t];
    for (long i = 0; i < D; i++)
      SIMD for (long t = 0; t < S; t++)
        dy[i * S + t] = r[t] * (scale * dy[i * S + t] - y[i * S + t] / scale * spare[t] / D);
  } else
    SIMD for (long i = 0; i < D * S; i++) dy[i] *= scale;
  rotate(dy, s, room, -1);
  turn(dy, S, spare, room->D, D, S);
  for (long t = 0; t < s->S; t++)
    SIMD for (long i = 0; i < D; i++) dx[t * stride + i] = put(spare[t * room->D + i]);
}

// A row that is no plain text: a prefix and, one after the other, several choices of how it goes on. A token of a choice
// sees the prefix and its own choice, which begins at `own`, and is at its `position`
typedef struct {
  const int32_t *position, *own;  // [S]
  long prefix;
} Row;

// The first key that one of the queries from i on sees, down to a multiple of eight
static inline long first(long i, const Shape *s, const Row *row) {
  return row || i < s->window ? 0 : (i - s->window + 1) / 8 * 8;
}

// Scores p [keys][I] of the queries from i on, -inf where a query does not see a key
static void scores(const float *k, const float *q_turned, float *p, long i, const Shape *s, const Room *room,
                   const Row *row) {
  long j0 = first(i, s, row), queries = s->S - i < I ? s->S - i : I;
  product(i + I - j0, I, s->D, k + j0 * room->D, room->D, 1, q_turned + i, room->S, p, I, 0);
  for (long j = j0; j < i + I; j++) {
    float *at = p + (j - j0) * I;
    if (row && !(j <= i && j < row->prefix && s->window >= s->S))
      for (long n = 0; n < queries; n++) {
        long t = i + n, near = row->position[t] - (j < s->S ? row->position[j] : 0) < s->window;
        if (j > t || !near || (j >= row->prefix && j < row->own[t])) at[n] = -INFINITY;
      }
    else if (!row && (j > i || i + I - 1 - j >= s->window))
      SIMD for (int n = 0; n < I; n++) {
        int back = (int)(i - j) + n;
        at[n] = back >= 0 && back < s->window ? at[n] : -INFINITY;
      }
  }
}

// One head: qkv, `more`, out and lse begin where it does; q turned, k, v turned and the rest are room
typedef struct {
  float *qt, *k, *kt, *v, *vt, *r, *p, *o, *rows;
} Buffers;

static void attend(const T *qkv, const T *more, T *out, float *lse, const Shape *s, const Room *room, const Row *row,
                   const Buffers *to) {
  long S = room->S, D = s->D, H = s->H, stride = 3 * H * D;
  prepare(qkv, stride, s, room, 1 / sqrtf(D), 0, to->qt, to->r, to->v);
  prepare(qkv + H * D, stride, s, room, 1, to->k, to->kt, to->r, to->v);
  panels(qkv + 2 * H * D, more, stride, s, room, to->v, to->vt);
  float *p = to->p;
  for (long i = 0; i < s->S; i += I) {
    long j0 = first(i, s, row), keys = i + I - j0;
    float m[I], l[I];
    scores(to->k, to->qt, p, i, s, room, row);
    for (int n = 0; n < I; n++) m[n] = -INFINITY, l[n] = 0;
    for (long j = 0; j < keys; j++)
      SIMD for (int n = 0; n < I; n++) m[n] = p[j * I + n] > m[n] ? p[j * I + n] : m[n];
    for (long j = 0; j < keys; j++)
      SIMD for (int n = 0; n < I; n++) l[n] += p[j * I + n] = exp_(p[j * I + n] - m[n]);
    product(D, I, keys, to->vt + j0, S, 1, p, I, to->o, I, 0);
    turn(to->o, I, to->rows, room->D, D, I);
    for (long n = 0; n < I && i + n < s->S; n++) {
      float by = 1 / l[n];
      SIMD for (long c = 0; c < D; c++) out[(i + n) * H * D + c] = put(to->rows[n * room->D + c] * by);
      if (lse) lse[i + n] = m[n] + logf(l[n]);
    }
  }
}

static Buffers buffers(const Shape *s, const Room *room) {
  long panel = room->S * room->D;
  float *at = calloc(5 * panel + room->S + I * room->S + I * room->D * 2, sizeof(float));
  Buffers to = {at, at + panel, at + 2 * panel, at + 3 * panel, at + 4 * panel, at + 5 * panel, 0, 0, 0};
  to.p = to.r + room->S, to.o = to.p + I * room->S, to.rows = to.o + I * room->D;
  return to;
}

// qkv [B, S, 3 H, D], `more` [B, S, H, D] is added to v or absent; out [B, S, H, D]; lse [B, H, S], log of the sums
void attention(const T *qkv, const T *more, const float *angles, T *out, float *lse, const Shape *s) {
  long S = s->S, H = s->H, D = s->D;
  Room room = room_for(s, angles);
  Buffers to = buffers(s, &room);
  for (long b = 0; b < s->B; b++)
    for (long h = 0; h < H; h++) {
      long own = b * S * H * D + h * D;
      attend(qkv + 3 * b * S * H * D + h * D, more ? more + own : 0, out + own, lse + (b * H + h) * S, s, &room, 0, &to);
    }
  free(to.qt);
  free(room.cos);
}

// The same for rows of prefixes [B] and choices; angles [B, S, D/2, 2], position and own [B, S]
void attention_to_choices(const T *qkv, const T *more, const float *angles, const int32_t *position, const int32_t *own,
                          const int64_t *prefix, T *out, const Shape *s) {
  long S = s->S, H = s->H, D = s->D;
  for (long b = 0; b < s->B; b++) {
    Room room = room_for(s, angles + b * S * D);
    Buffers to = buffers(s, &room);
    Row row = {position + b * S, own + b * S, prefix[b]};
    for (long h = 0; h < H; h++) {
      long at = b * S * H * D + h * D;
      attend(qkv + 3 * b * S * H * D + h * D, more ? more + at : 0, out + at, 0, s, &room, &row, &to);
    }
    free(to.qt);
    free(room.cos);
  }
}

// dqkv [B, S, 3 H, D] of g [B, S, H, D]; v's part is also the gradient of `more`
void attention_backward(const T *g, const T *qkv, const T *more, const float *angles, const T *out, const float *lse,
                        T *dqkv, const Shape *s) {
  Room room = room_for(s, angles);
  long S = room.S, D = s->D, Dp = room.D, H = s->H, stride = 3 * H * D, panel = S * Dp;
  float *at = calloc(12 * panel + 4 * S + 2 * I * S, sizeof(float)), *begin = at;
  float *q = at, *qt = at += panel, *k = at += panel, *kt = at += panel, *v = at += panel, *go = at += panel;
  float *got = at += panel, *dqt = at += panel, *dk = at += panel, *dkt = at += panel, *dv = at += panel;
  float *spare = at += panel, *qr = at += panel, *kr = at += S, *delta = at += S, *sums = at += S, *p = at += S;
  float *ds = at += I * S;
  for (long b = 0; b < s->B; b++)
    for (long h = 0; h < H; h++) {
      long base = b * s->S * stride + h * D, own = (b * s->S * H + h) * D;
      float scale = 1 / sqrtf(D);
      prepare(qkv + base, stride, s, &room, scale, q, qt, qr, spare);
      prepare(qkv + base + H * D, stride, s, &room, 1, k, kt, kr, spare);
      panels(qkv + base + 2 * H * D, more ? more + own : 0, stride, s, &room, v, 0);
      panels(g + own, 0, H * D, s, &room, go, got);
      memset(dk, 0, panel * sizeof(float));
      memset(dv, 0, panel * sizeof(float));
      for (long t = 0; t < s->S; t++) {
        float sum = 0;
        SUM for (long c = 0; c < D; c++) sum += go[t * Dp + c] * get(out[own + t * H * D + c]);
        delta[t] = sum;
        sums[t] = lse[(b * H + h) * s->S + t];
      }
      for (long t = s->S; t < S; t++) sums[t] = INFINITY;  // no query
      for (long i = 0; i < s->S; i += I) {
        long j0 = first(i, s, 0), keys = i + I - j0;
        scores(k, qt, p, i, s, &room, 0);
        product(keys, I, D, v + j0 * Dp, Dp, 1, got + i, S, ds, I, 0);
        for (long j = 0; j < keys; j++)
          SIMD for (int n = 0; n < I; n++) {
            p[j * I + n] = exp_(p[j * I + n] - sums[i + n]);
            ds[j * I + n] = p[j * I + n] * (ds[j * I + n] - delta[i + n]);
          }
        product(D, I, keys, kt + j0, S, 1, ds, I, dqt + i, S, 0);
        for (long c = 0; c < Dp; c += I) {
          long width = Dp - c > L ? I : L;
          product(keys, width, I, ds, I, 1, q + i * Dp + c, Dp, dk + j0 * Dp + c, Dp, 1);
          product(keys, width, I, p, I, 1, go + i * Dp + c, Dp, dv + j0 * Dp + c, Dp, 1);
        }
      }
      unprepare(dqt, qt, qr, s, &room, scale, spare, dqkv + base, stride);
      turn(dk, Dp, dkt, S, S, D);
      unprepare(dkt, kt, kr, s, &room, 1, spare, dqkv + base + H * D, stride);
      for (long t = 0; t < s->S; t++)
        SIMD for (long c = 0; c < D; c++) dqkv[base + 2 * H * D + t * stride + c] = put(dv[t * Dp + c]);
    }
  free(begin);
  free(room.cos);
}

#ifndef BF16
static float norm_of(const float *restrict x, long n) {
  float sum = 0;
  SUM for (long i = 0; i < n; i++) sum += x[i] * x[i];
  return sqrtf(sum);
}

// ---- orthogonalisation ---------------------------------------------------------------------------------------------

// C [M][M] = A [M][K] B [K][M], of which one knows that it is symmetric: half of it is computed
static void symmetric(const float *A, long am, long ak, const float *B, long bk, long bn, float *C, long M, long K) {
  multiply(A, am, ak, B, bk, bn, C, M, M, M, K, 0, 1);
  for (long r = L; r < M; r += L) turn(C + r * M, M, C + r, M, M - r < L ? M - r : L, r);
}

// Q = a 1 + b A + c A^2, [M][M] symmetric
static void quintic(const float *A, const float *abc, float *restrict Q, long M) {
  symmetric(A, M, 1, A, M, 1, Q, M, M);
  SIMD for (long i = 0; i < M * M; i++) Q[i] = abc[1] * A[i] + abc[2] * Q[i];
  for (long i = 0; i < M; i++) Q[i * M + i] += abc[0];
}

static void swap(float **a, float **b) {
  float *old = *a;
  *a = *b, *b = old;
}

// n matrices X [R][C], each divided by `room` times its Frobenius norm, through `steps` of X <- (a 1 + b A + c A^2) X, A =
// X X^T, of the smaller side M. Where the other side is at least twice as long only A is stepped, A <- Q A Q, and X is
// multiplied by the product P of all Q. Q, A and P are polynomials of the first A, so they commute and every product of
// them is symmetric. What lies along small singular values of X is lost in A, so that A is made anew once the first steps
// have raised these; and a square X, which would gain nothing, is multiplied in every step.
enum { RAISED = 2 };
void orthogonalize(float *X, long n, long R, long C, const float *abc, long steps, float room) {
  int tall = R > C;
  long M = tall ? C : R, K = tall ? R : C, xm = tall ? 1 : C, xk = tall ? C : 1, square = M * M;
  float *A = malloc((5 * square + R * C) * sizeof(float)), *Q = A + square, *QA = Q + square, *P = QA + square;
  float *QP = P + square, *QX = QP + square;
  for (; n--; X += R * C) {
    float by = 1 / (room * norm_of(X, R * C) + 1e-6f);
    SIMD for (long i = 0; i < R * C; i++) X[i] *= by;
    float *x = X, *next = QX;
    for (long step = 0; step < steps; step++) {
      int begins = K < 2 * M || step == 0 || step == RAISED, ends = K < 2 * M || step + 1 == RAISED || step + 1 == steps;
      if (begins) symmetric(x, xm, xk, x, xk, xm, A, M, K);
      quintic(A, abc + 3 * step, Q, M);
      if (!ends) {
        symmetric(Q, M, 1, A, M, 1, QA, M, M);
        symmetric(Q, M, 1, QA, M, 1, A, M, M);
      }
      if (begins)
        swap(&P, &Q);
      else {
        symmetric(Q, M, 1, P, M, 1, QP, M, M);
        swap(&P, &QP);
      }
      if (!ends) continue;
      if (tall)
        matmul(x, C, 1, P, M, 1, next, C, R, C, C, 0);
      else
        matmul(P, M, 1, x, C, 1, next, C, R, C, R, 0);
      swap(&x, &next);
    }
    if (x != X) memcpy(X, x, R * C * sizeof(float));
  }
  free(A);
}

// ---- Muon ----------------------------------------------------------------------------------------------------------

typedef struct {
  float beta, beta2;  // of the momentum, and of the variance where it is reduced
  float decay;        // times a matrix's rate
  int cautious;       // decay only what the update shrinks as well
  const float *abc;   // of the orthogonalisation
  long steps;
  float room;
} How;

// u [R][C] over the running rms v of each row of a tall matrix or of each column of a wide one, at the norm that u had
static void reduce_variance(float *restrict u, float *restrict v, long R, long C, float beta2, float *restrict room) {
  int tall = R >= C;
  float had = norm_of(u, R * C);
  if (tall)
    for (long r = 0; r < R; r++) {
      float sum = 0;
      SUM for (long c = 0; c < C; c++) sum += u[r * C + c] * u[r * C + c];
      room[r] = sum / C;
    }
  else {
    memset(room, 0, C * sizeof(float));
    for (long r = 0; r < R; r++)
      SIMD for (long c = 0; c < C; c++) room[c] += u[r * C + c] * u[r * C + c] / R;
  }
  for (long i = 0; i < (tall ? R : C); i++) {
    v[i] += (1 - beta2) * (room[i] - v[i]);
    room[i] = 1 / sqrtf(v[i] < 1e-10f ? 1e-10f : v[i]);
  }
  for (long r = 0; r < R; r++)
    SIMD for (long c = 0; c < C; c++) u[r * C + c] *= room[tall ? r : c];
  float has = norm_of(u, R * C), by = had / (has < 1e-10f ? 1e-10f : has);
  SIMD for (long i = 0; i < R * C; i++) u[i] *= by;
}

// p <- p - lr decay p - lr u; or on the sphere of a radius, p <- p - lr radius u / |u|, put back to that radius
static void move(float *restrict p, const float *restrict u, long n, float lr, const float *radius, const How *how) {
  if (radius) {
    float size = norm_of(u, n), by = lr * *radius / (size < 1e-10f ? 1e-10f : size);
    SIMD for (long i = 0; i < n; i++) p[i] -= by * u[i];
    float back = *radius / norm_of(p, n);
    SIMD for (long i = 0; i < n; i++) p[i] *= back;
  } else {
    float shrink = lr * how->decay;
    int cautious = how->cautious;
    SIMD for (long i = 0; i < n; i++) {
      float by = cautious && !(u[i] * p[i] >= 0) ? 0 : shrink;
      p[i] -= by * p[i] + lr * u[i];
    }
  }
}

// One update of n matrices p[i] [R][C] with gradients g[i]: Nesterov's momentum m [n][R][C], orthogonalised, its variance
// v [n][R or C] reduced where there is one, and a step at the rate lr[i], on the sphere of radius[i] where there is one
void muon(const float *const *g, float *const *p, float *restrict m, float *v, const float *lr, const float *radius, long n,
          long R, long C, const How *how) {
  long size = R * C;
  float *u = malloc((size + R + C) * sizeof(float)), beta = how->beta;
  for (long i = 0; i < n; i++, m += size) {
    const float *restrict own = g[i];
    SIMD for (long k = 0; k < size; k++) {
      m[k] += (1 - beta) * (own[k] - m[k]);
      u[k] = own[k] + beta * (m[k] - own[k]);
    }
    orthogonalize(u, 1, R, C, how->abc, how->steps, how->room);
    if (v) reduce_variance(u, v + i * (R >= C ? R : C), R, C, how->beta2, u + size);
    move(p[i], u, size, lr[i], radius ? radius + i : 0, how);
  }
  free(u);
}

// |x| of n tensors x[i] of sizes[i] together, each one's sum of squares rounded by itself
void total_norm(const float *const *x, const long *sizes, long n, double *norm) {
  double all = 0;
  for (long i = 0; i < n; i++) {
    float one = norm_of(x[i], sizes[i]);
    all += (double)one * one;
  }
  *norm = sqrt(all);
}

// ---- residual branches, y = x + a f(n(x)), in fp32 as a whole --------------------------------------------------------

enum { FEW = 3 };  // rows that do not pay for laying W out anew
static void linear(const float *x, const float *W, float *y, long ldy, long rows, long d, long m) {  // x W^T
  if (rows <= FEW && d % L == 0 && m % L == 0)
    for (; rows--; x += d, y += ldy) dots(x, W, d, y, d, m);
  else
    matmul(x, d, 1, W, 1, d, y, ldy, rows, m, d, 0);
}

static void linear_backward(const float *g, long ldg, const float *x, const float *W, float *dx, float *dW, long rows, long d,
                            long m, int add) {  // dx (+)= g W, dW = g^T x
  matmul(g, ldg, 1, W, d, 1, dx, d, rows, d, m, add);
  matmul(g, 1, ldg, x, d, 1, dW, d, m, d, rows, 0);
}

static void residual(const float *restrict x, float *restrict y, long n, float a) {  // y = x + a y
  SIMD for (long i = 0; i < n; i++) y[i] = x[i] + a * y[i];
}

// The branch's gradient a dy, in `room` where that is not dy itself
static const float *of_branch(const float *restrict dy, float *restrict room, long n, float a) {
  if (a == 1) return dy;
  SIMD for (long i = 0; i < n; i++) room[i] = a * dy[i];
  return room;
}

// From the gradient of n(x), dn, and of the residual stream, dy, to dx
static void into_stream(const float *dn, const float *restrict dy, const float *x, const float *gain, const float *r,
                        float *restrict dx, float *dgain, long rows, long d) {
  if (r)
    norm_backward(dn, x, gain, r, dx, dgain, rows, d);
  else
    memcpy(dx, dn, rows * d * sizeof(float));
  SIMD for (long i = 0; i < rows * d; i++) dx[i] += dy[i];
}

// n(x) in `room`, or x itself where there is no norm; the way back makes it again from r
static const float *normed(const float *restrict x, const float *restrict gain, const float *restrict r, float *restrict room,
                           long rows, long d) {
  if (!r) return x;
  for (long t = 0; t < rows; t++)
    if (gain)
      SIMD for (long i = 0; i < d; i++) room[t * d + i] = x[t * d + i] * r[t] * gain[i];
    else
      SIMD for (long i = 0; i < d; i++) room[t * d + i] = x[t * d + i] * r[t];
  return room;
}

// x [B S, d], d = H D, all matrices [d, d]. Kept for the way back, as little as is dear to compute again, since what does
// not stay in the cache is dearer: r [B S] where there is a norm, qkv [B S, 3 d], o [B S, d], lse [B, H, S]
void attention_branch(const float *x, const float *gain, const float *q, const float *k, const float *v, const float *out,
                      const float *angles, float *r, float *qkv, float *o, float *lse, float *y, float eps, float a, const Shape *s) {
  long rows = s->B * s->S, d = s->H * s->D;
  if (r) norm(x, gain, y, r, rows, d, eps);
  const float *n = r ? y : x;  // where y will be, which is not needed yet
  linear(n, q, qkv, 3 * d, rows, d, d);
  linear(n, k, qkv + d, 3 * d, rows, d, d);
  linear(n, v, qkv + 2 * d, 3 * d, rows, d, d);
  attention(qkv, 0, angles, o, lse, s);
  linear(o, out, y, d, rows, d, d);
  residual(x, y, rows * d, a);
}

void attention_branch_backward(const float *dy, const float *x, const float *gain, const float *q, const float *k,
                               const float *v, const float *out, const float *angles, const float *r,
                               const float *qkv, const float *o, const float *lse, float *dx, float *dgain, float *dq,
                               float *dk, float *dv, float *dout, float a, const Shape *s) {
  long rows = s->B * s->S, d = s->H * s->D;
  float *room = malloc(5 * rows * d * sizeof(float)), *dn = room, *go = room + rows * d, *dqkv = room + 2 * rows * d;
  linear_backward(of_branch(dy, dn, rows * d, a), d, o, out, go, dout, rows, d, d, 0);
  attention_backward(go, qkv, 0, angles, o, lse, dqkv, s);
  const float *n = normed(x, gain, r, go, rows, d);
  linear_backward(dqkv, 3 * d, n, q, dn, dq, rows, d, d, 0);
  linear_backward(dqkv + d, 3 * d, n, k, dn, dk, rows, d, d, 1);
  linear_backward(dqkv + 2 * d, 3 * d, n, v, dn, dv, rows, d, d, 1);
  into_stream(dn, dy, x, gain, r, dx, dgain, rows, d);
  free(room);
}

static void activate(const float *u, const float *z, float *h, long n) {
  if (z)
    swiglu(z, u, h, n);
  else
    relu2(u, h, n);
}

// x [rows, d], up [F, d], down [d, F]; with a gate [F, d] SwiGLU, otherwise relu^2. Kept: r as above, u [rows, F], and where
// there is a gate z [rows, F]
void mlp_branch(const float *x, const float *gain, const float *up, const float *gate, const float *down, float *r, float *u,
                float *z, float *y, long rows, long d, long F, float eps, float a) {
  float *h = malloc(rows * F * sizeof(float));
  if (r) norm(x, gain, y, r, rows, d, eps);
  const float *n = r ? y : x;
  linear(n, up, u, F, rows, d, F);
  if (gate) linear(n, gate, z, F, rows, d, F);
  activate(u, z, h, rows * F);
  linear(h, down, y, d, rows, F, d);
  residual(x, y, rows * d, a);
  free(h);
}

void mlp_branch_backward(const float *dy, const float *x, const float *gain, const float *up, const float *gate,
                         const float *down, const float *r, const float *u, const float *z, float *dx, float *dgain,
                         float *dup, float *dgate, float *ddown, long rows, long d, long F, float a) {
  float *room = malloc((3 * rows * F + 2 * rows * d) * sizeof(float)), *dh = room, *du = room + rows * F;
  float *dz = room + 2 * rows * F, *dn = room + 3 * rows * F, *h = du;
  activate(u, z, h, rows * F);
  linear_backward(of_branch(dy, dn, rows * d, a), d, h, down, dh, ddown, rows, F, d, 0);
  if (gate)
    swiglu_backward(dh, z, u, dz, du, rows * F);
  else
    relu2_backward(dh, u, du, rows * F);
  const float *n = normed(x, gain, r, dn + rows * d, rows, d);
  linear_backward(du, F, n, up, dn, dup, rows, d, F, 0);
  if (gate) linear_backward(dz, F, n, gate, dn, dgate, rows, d, F, 1);
  into_stream(dn, dy, x, gain, r, dx, dgain, rows, d);
  free(room);
}

// ---- a decoder's attention over its cache, in fp32 -------------------------------------------------------------------

// y [rows][m] = x [rows][K] W^T, of W laid out in panels of I outputs, [m / I][K][I], the last one filled up with zeros
static void linear_of_panels(const float *x, const float *W, float *y, long rows, long K, long m, float *spare) {
  for (long n = 0; n < m; n += I, W += K * I) {
    int whole = m - n >= I;
    product(rows, I, K, x, K, 1, W, I, whole ? y + n : spare, whole ? m : I, 0);
    for (long r = 0; !whole && r < rows; r++) memcpy(y + r * m + n, spare + r * I, (m - n) * sizeof(float));
  }
}

// q or k [D] of one head: rotated, and normed
static void prepare_one(float *restrict z, const float *restrict angles, const Shape *s) {
  long half = s->D / 2, apart = s->half_split ? half : 1, step = s->half_split ? 1 : 2;
  for (long j = 0; j < half; j++) {
    float *a = z + j * step, *b = a + apart, old = *a, cos = angles[2 * j], sin = angles[2 * j + 1];
    *a = old * cos - *b * sin;
    *b = *b * cos + old * sin;
  }
  if (!s->qk_norm) return;
  float sum = 0;
  for (long i = 0; i < s->D; i++) sum += z[i] * z[i];
  float r = 1.0f / sqrtf(sum / s->D + s->eps);
  SIMD for (long i = 0; i < s->D; i++) z[i] *= r;
}

// x [n, d] of tokens whose row, position and slot are at [3, n]: each one's k and v are written to its slot of the cache
// [slots, B, S, 2, KV, D], and it attends to what its row has there up to itself. W [(H + 2 KV) D, d] and out [d, H D] are
// laid out in panels; bias [H + KV, D], gate [H, 32] and values [n, H D] or 0; angles [S or more, D/2, 2]
enum { GATE_CHANNELS = 32 };  // as in lib/model/layers.py
void attention_over_cache(const float *x, const float *values, const int64_t *at, float *y, long n, const float *W,
                          const float *out, const float *bias, const float *gate, const float *angles, float *cache, long d,
                          long KV, const Shape *s) {
  long H = s->H, D = s->D, S = s->S, m = (H + 2 * KV) * D, stride = 2 * KV * D, group = H / KV, room = (S + L - 1) / L * L;
  const int64_t *row = at, *position = at + n, *slot = at + 2 * n;
  float *qkv = malloc((n * (m + H * D + I) + room) * sizeof(float)), *o = qkv + n * m, *spare = o + n * H * D, *p = spare + n * I;
  linear_of_panels(x, W, qkv, n, d, m, spare);
  for (long t = 0; t < n; t++) {
    float *z = qkv + t * m, *k = z + H * D, *v = k + KV * D;
    if (bias)
      SIMD for (long i = 0; i < (H + KV) * D; i++) z[i] += bias[i];
    for (long h = 0; h < H + KV; h++) prepare_one(z + h * D, angles + position[t] * D, s);
    for (long h = 0; gate && h < H; h++) {
      float sum = 0;
      for (long i = 0; i < GATE_CHANNELS; i++) sum += gate[h * GATE_CHANNELS + i] * x[t * d + i];
      float by = 2.0f / (1.0f + exp_(-sum));
      SIMD for (long i = 0; i < D; i++) v[h * D + i] += by * values[(t * H + h) * D + i];
    }
    memcpy(cache + ((slot[t] * s->B + row[t]) * S + position[t]) * stride, k, stride * sizeof(float));
  }
  float scale = 1 / sqrtf(D);
  for (long t = 0; t < n; t++) {
    long from = position[t] < s->window ? 0 : position[t] - s->window + 1, keys = position[t] + 1 - from;
    const float *seen = cache + ((slot[t] * s->B + row[t]) * S + from) * stride;
    for (long h = 0; h < H; h++) {
      const float *k = seen + h / group * D, *v = k + KV * D;
      float top = -INFINITY, part[L] = {0}, sum = 0, *to = o + (t * H + h) * D;
      dots(qkv + t * m + h * D, k, stride, p, D, keys);
#pragma omp simd reduction(max : top)
      for (long j = 0; j < keys; j++) top = p[j] > top ? p[j] : top;
      for (long j = keys; j % L; j++) p[j] = -INFINITY;
      for (long j = 0; j < keys; j += L)
        SIMD for (int l = 0; l < L; l++) part[l] += p[j + l] = exp_((p[j + l] - top) * scale);
      for (int l = 0; l < L; l++) sum += part[l];
      product(1, D, keys, p, keys, 1, v, stride, to, D, 0);
      float by = 1 / sum;
      SIMD for (long i = 0; i < D; i++) to[i] *= by;
    }
  }
  linear_of_panels(o, out, y, n, H * D, d, spare);
  free(qkv);
}
#endif
