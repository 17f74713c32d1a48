// 3x3 convolution of pixel groups, 64 values to 64 values each, for Hopper (sm_90a).
//
//     y = relu(conv(x) + bias + residual)         channels-last, half precision, sums in float
//     y = conv(x) where mask > 0, else 0          the gradient of a ReLU, for training
//
// A pixel group is GROUP neighbouring pixels of 64 / GROUP channels: 128 bytes. It depends on a window of each of three
// rows: the group, and one pixel on either side. With GROUP > 1 the weights of a window are a band matrix, whose zeros
// are multiplied too (see `STEPS`).
//
// One block stays on each multiprocessor. It keeps the weights in shared memory and takes tiles of ROWS x 8 groups, which
// the copy engine fetches with a halo of one (zeros beyond the picture). A tile is fetched once and used nine times: the
// second operand of a matrix product is the tile, read from a shifted address. This is correct because the swizzle of
// shared memory is a function of the address alone. The product is D[output, group]: the matrix unit reads least from
// shared memory when the groups are its wide side.
//
// Two warpgroups work in turns: while one multiplies, the other writes its tile and awaits the next.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;

struct __align__(64) TensorMap { u64 opaque[16]; };

constexpr int COLUMNS = 8, GROUPS = ROWS * COLUMNS;        // ROWS is 30, or 22 for small pictures
constexpr int CHANNELS = 64 / GROUP;
constexpr int PIXEL = 2 * CHANNELS;                         // bytes
constexpr int PITCH = (COLUMNS + 2) * 128;                  // bytes from one row of a tile to the next
constexpr int TILE = (ROWS + 2) * PITCH, RESULT = GROUPS * 128;
constexpr int FIRST = 128 - PIXEL;                          // a window begins one pixel before its group
constexpr int STEPS = (128 + 2 * PIXEL) / 32;               // products of 16 numbers for one row of the window
constexpr int WEIGHTS = (3 * STEPS + 3) / 4 * 8192;
constexpr int BARRIERS = WEIGHTS + 2 * TILE + 2 * RESULT;   // offset in shared memory
constexpr int WORKERS = 256;
constexpr int RESIDUAL = 1;                                 // `second` is the kind of `residual_or_mask`; 2: mask, 0: none

__device__ __forceinline__ void expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void await(u32 barrier, u32 parity) {
    asm volatile(
        "{ .reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again; }" ::"r"(barrier), "r"(parity) : "memory");
}

__device__ __forceinline__ void fetch(u32 to, const TensorMap* map, u32 barrier, int x, int y, int n) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
        ::"r"(to), "l"(map), "r"(barrier), "r"(0), "r"(x), "r"(y), "r"(n) : "memory");
}

// Wait until the kernel before this one is done and its results are visible.
__device__ __forceinline__ void await_others() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Prefetch into the L2 cache.
__device__ __forceinline__ void prepare(const TensorMap* map, int x, int y, int n) {
    asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];"
                 ::"l"(map), "r"(0), "r"(x), "r"(y), "r"(n) : "memory");
}

__device__ __forceinline__ void put(const TensorMap* map, u32 from, int x, int y, int n) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];\n"
        "cp.async.bulk.commit_group;" ::"l"(map), "r"(from), "r"(0), "r"(x), "r"(y), "r"(n) : "memory");
}

// A matrix in shared memory, rows of 128 bytes, swizzled; `stride` bytes from eight rows to the next eight.
__device__ __forceinline__ u64 matrix(u32 address, u32 stride) {
    return (u64)(address >> 4) | (u64)1 << 16 | (u64)(stride >> 4) << 32 | (u64)1 << 62;
}

#define F4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define F20(i) F4(i), F4(i + 4), F4(i + 8), F4(i + 12), F4(i + 16)

#define UP_TO_87 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, " \
    "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, " \
    "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87"
#if ROWS == 30
#define SHAPE "m64n240k16"
#define SUMS UP_TO_87 ", %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, " \
    "%104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119"
#define FACTORS "%120, %121"
#define ADD "%122"
#define ALL F20(0), F20(20), F20(40), F20(60), F20(80), F20(100)
#else
#define SHAPE "m64n176k16"
#define SUMS UP_TO_87
#define FACTORS "%88, %89"
#define ADD "%90"
#define ALL F20(0), F20(20), F20(40), F20(60), F4(80), F4(84)
#endif

#if HALF
#define KIND "f16.f16"
#else
#define KIND "bf16.bf16"
#endif

// D (+)= A B
__device__ __forceinline__ void multiply(float (&d)[GROUPS / 2], u64 a, u64 b, int add) {
    asm volatile(
        "{ .reg .pred add;\n"
        "setp.ne.b32 add, " ADD ", 0;\n"
        "wgmma.mma_async.sync.aligned." SHAPE ".f32." KIND " {" SUMS "}, " FACTORS ", add, 1, 1, 0, 0; }"
        : ALL
        : "l"(a), "l"(b), "r"(add));
}

__device__ __forceinline__ float number(u16 x) {
#if HALF
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
#else
    return __uint_as_float((u32)x << 16);
#endif
}

__device__ __forceinline__ u32 pair(float low, float high) {
    u32 both;
#if HALF
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#endif
    return both;
}

extern "C" __global__ void __launch_bounds__(WORKERS + 32, 1)
conv(const __grid_constant__ TensorMap from, const __grid_constant__ TensorMap residual_or_mask,
     const __grid_constant__ TensorMap to, const u16* __restrict__ weight, const u16* __restrict__ bias,
     int output_stride, int tap_stride, int second, int relu, int wide, int high, int tiles) {
    extern __shared__ unsigned char memory[];
    const u32 base = ((u32)__cvta_generic_to_shared(memory) + 1023) & ~1023u;
    const u32 full = base + BARRIERS, empty = full + 16, turn = full + 32, ready = full + 48;  // two of each
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + 8 * i) : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 4;" ::"r"(empty + 8 * i) : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 4;" ::"r"(turn + 8 * i) : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(ready + 8 * i) : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    // The next kernel may come up as soon as there is room, and waits in `await_others`.
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");

    if (warp == WORKERS / 32) {
        if (lane == 0) {
            await_others();
            int i = 0;
            for (int t = blockIdx.x; t < tiles; t += gridDim.x, i++) {
                const int mine = i & 1;
                await(empty + 8 * mine, ~(i >> 1) & 1);
                expect(full + 8 * mine, TILE);
                fetch(base + WEIGHTS + mine * TILE, &from, full + 8 * mine,
                      t % wide * COLUMNS - 1, t / wide % high * ROWS - 1, t / (wide * high));
                if (second)
                    prepare(&residual_or_mask, t % wide * COLUMNS, t / wide % high * ROWS, t / (wide * high));
            }
        }
        return;
    }

    // The weights, eight values at a time: output m of a group, input values from `at` on, counted from the group
    // before. All are requested before the first is stored.
    constexpr int UNITS = 64 * 6 * STEPS / WORKERS;
    uint4 units[UNITS];
    await_others();
#pragma unroll
    for (int i = 0; i < UNITS; i++) {
        const int unit = threadIdx.x + i * WORKERS, m = unit / (6 * STEPS), k = unit % (6 * STEPS);
        const int down = k / (2 * STEPS), at = FIRST / 2 + k % (2 * STEPS) * 8;
        const int right = at / CHANNELS - GROUP - m / CHANNELS;
        units[i] = make_uint4(0, 0, 0, 0);
        if (right >= -1 && right <= 1)
            units[i] = *(const uint4*)(weight + (m % CHANNELS) * output_stride
                                       + (3 * down + right + 1) * tap_stride + at % CHANNELS);
    }
#pragma unroll
    for (int i = 0; i < UNITS; i++) {
        const int unit = threadIdx.x + i * WORKERS, m = unit / (6 * STEPS), k = unit % (6 * STEPS);
        const u32 where = base + k / 8 * 8192 + m * 128 + (((k ^ m) & 7) << 4);
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
                     ::"r"(where), "r"(units[i].x), "r"(units[i].y), "r"(units[i].z), "r"(units[i].w) : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync 3, 256;" ::: "memory");

    const int mine = warp / 4, other = 1 - mine;
    const bool first = threadIdx.x % 128 == 0;
    const u32 result = base + WEIGHTS + 2 * TILE + mine * RESULT;
    const u64 a = matrix(base, 1024), b = matrix(base + WEIGHTS + mine * TILE, PITCH);
    const int row = warp % 4 * 16 + lane / 4;
    const float bias_0 = bias ? number(bias[row % CHANNELS]) : 0.0f;
    const float bias_1 = bias ? number(bias[(row + 8) % CHANNELS]) : 0.0f;
    const u32 at = result + (lane / 16 * 8 + lane % 8) * 128
                   + (((warp % 4 * 2 + lane / 8 % 2) ^ (lane % 8)) << 4);
    int t = blockIdx.x + mine * gridDim.x;
    if (second && first && t < tiles) {
        expect(ready + 8 * mine, RESULT);
        fetch(result, &residual_or_mask, ready + 8 * mine,
              t % wide * COLUMNS, t / wide % high * ROWS, t / (wide * high));
    }
    float d[GROUPS / 2];
    for (int i = 0; t < tiles; i ^= 1) {
        await(turn + 8 * mine, mine ? i : i ^ 1);
        await(full + 8 * mine, i);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < 3 * STEPS; k++)
            multiply(d, a + (k / 4 * 8192 + k % 4 * 32) / 16,
                     b + (k / STEPS * PITCH + FIRST + k % STEPS * 32) / 16, k > 0);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        if (lane == 0) arrive(turn + 8 * other);
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (lane == 0) arrive(empty + 8 * mine);

        if (second) {
            await(ready + 8 * mine, i);
        } else {
            if (first) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
            asm volatile("bar.sync %0, 128;" ::"r"(1 + mine) : "memory");
        }
#pragma unroll
        for (int j = 0; j < GROUPS / 16; j++) {
            float v[8];
#pragma unroll
            for (int e = 0; e < 8; e++) v[e] = d[8 * j + e] + (e & 2 ? bias_1 : bias_0);
            if (second) {
                u32 r[4];
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                             : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at + j * 2048) : "memory");
#pragma unroll
                for (int e = 0; e < 8; e++) {
                    const float s = number((u16)(e & 1 ? r[e / 2] >> 16 : r[e / 2]));
                    v[e] = second == RESIDUAL ? v[e] + s : s > 0.0f ? v[e] : 0.0f;
                }
            }
            if (relu) {
#pragma unroll
                for (int e = 0; e < 8; e++) v[e] = fmaxf(v[e], 0.0f);
            }
            asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                         ::"r"(at + j * 2048), "r"(pair(v[0], v[1])), "r"(pair(v[2], v[3])),
                           "r"(pair(v[4], v[5])), "r"(pair(v[6], v[7])) : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("bar.sync %0, 128;" ::"r"(1 + mine) : "memory");
        const int next = t + 2 * gridDim.x;
        if (first) {
            put(&to, result, t % wide * COLUMNS, t / wide % high * ROWS, t / (wide * high));
            if (second && next < tiles) {
                asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
                expect(ready + 8 * mine, RESULT);
                fetch(result, &residual_or_mask, ready + 8 * mine,
                      next % wide * COLUMNS, next / wide % high * ROWS, next / (wide * high));
            }
        }
        t = next;
    }
    if (first) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
