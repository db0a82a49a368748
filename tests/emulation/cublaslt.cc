// cuBLASLt on an emulated GPU. Products run in the stream's order. They are added up in fp32 in
// ascending k and rounded once, or in lower precision if the caller allows it. It refuses calls
// that the header and guide of the real one don't allow, and nearly all mistakes that a caller
// might make between a plan and its use.
#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "tests/emulation/cublaslt_product.h"

struct cublasLtContext {
  int device;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  std::int64_t rows, columns, ld;
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t align_a = 256, align_b = 256, align_c = 256, align_d = 256;
};

namespace {

using Layout = cublasLtMatrixLayoutOpaque_t;
using Description = cublasLtMatmulDescOpaque_t;
using emulation::has_auxiliary;
using emulation::has_bias;
using emulation::has_gradient;
using emulation::Product;

struct Record {
  std::mutex mutex;
  std::map<std::uint32_t, emulation::ProductCounts> counts;  // both by epilogue
  std::map<std::uint32_t, emulation::ProductBehavior> behaviors;
};
Record& record() {
  static Record it;
  return it;
}

// The workspace of each algorithm, in bytes.
constexpr std::array<std::size_t, emulation::product_algorithms> workspaces = {0, 4096, 1 << 20};
constexpr int broken_algorithm = emulation::product_algorithms - 1;

// The contents of cublasLtMatmulAlgo_t: its product, and the alignments that the caller promised.
struct Algorithm {
  std::uint32_t mark;
  std::int32_t id;
  std::uint64_t product;
  std::uint16_t align_a, align_b, align_c, align_d, align_bias, align_auxiliary;
  bool split;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));
constexpr std::uint32_t algorithm_mark = 0x616c676f;

bool known_epilogue(const Description& d) {
  return d.epilogue == CUBLASLT_EPILOGUE_DEFAULT || has_bias(d) || has_gradient(d) ||
         has_auxiliary(d);
}

// The guide's table of types: of A and B, of C and D, and of the computation.
bool known_types(const Description& d, cudaDataType_t input, cudaDataType_t output) {
  if (d.scale != CUDA_R_32F) return false;
  if (d.compute == CUBLAS_COMPUTE_32F_FAST_TF32) return input == CUDA_R_32F && output == CUDA_R_32F;
  if (d.compute != CUBLAS_COMPUTE_32F) return false;
  return (input == CUDA_R_32F && output == CUDA_R_32F) ||
         ((input == CUDA_R_16BF || input == CUDA_R_16F) &&
          (output == input || output == CUDA_R_32F));
}

bool possible(const Layout& x) {
  return x.rows > 0 && x.columns > 0 && x.ld >= x.rows;
}

cublasStatus_t examine(const Description* description, const Layout* a, const Layout* b,
                       const Layout* c, const Layout* d) {
  if (description == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (a->type != b->type || c->type != d->type || !known_types(*description, a->type, d->type) ||
      !known_epilogue(*description)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool ta = description->transpose_a == CUBLAS_OP_T,
             tb = description->transpose_b == CUBLAS_OP_T;
  const std::int64_t k = ta ? a->rows : a->columns;
  if (!possible(*a) || !possible(*b) || !possible(*c) || !possible(*d) ||
      (ta ? a->columns : a->rows) != d->rows || (tb ? b->columns : b->rows) != k ||
      (tb ? b->rows : b->columns) != d->columns || c->rows != d->rows || c->columns != d->columns) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if ((has_bias(*description) || has_gradient(*description)) && description->bias == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (has_auxiliary(*description) &&
      (description->auxiliary == nullptr || description->auxiliary_ld % 8 != 0 ||
       description->auxiliary_ld < d->rows)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_SUCCESS;
}

// A number made of the product's kind and sizes. An algorithm serves only products with its number.
std::uint64_t number_of(const Description& description, const Layout& a, const Layout& b,
                        const Layout& d) {
  std::uint64_t number = 0;
  const auto mix = [&](auto value) {
    number = (number ^ static_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15u;
    number ^= number >> 32;
  };
  mix(description.compute);
  mix(description.transpose_a);
  mix(description.transpose_b);
  mix(description.epilogue);
  for (const Layout* const x : {&a, &b, &d}) {
    mix(x->type);
    mix(x->rows);
    mix(x->columns);
    mix(x->ld);
  }
  return number;
}

bool aligned(const void* address, std::uint64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}
// The alignment of a pointer that the heuristic finds in the description, up to the widest access.
std::uint16_t alignment_of(const void* address) {
  return static_cast<std::uint16_t>(
      1u << std::countr_zero(reinterpret_cast<std::uintptr_t>(address) | 16u));
}

Product product_of(const Description& description, const Layout& a, const Layout& b,
                   const Layout& c, const Layout& d) {
  return {.description = description,
          .m = d.rows,
          .n = d.columns,
          .k = description.transpose_a == CUBLAS_OP_T ? a.rows : a.columns,
          .lda = a.ld,
          .ldb = b.ld,
          .ldc = c.ld,
          .ldd = d.ld,
          .a = nullptr,
          .b = nullptr,
          .c = nullptr,
          .d = nullptr,
          .alpha = 0,
          .beta = 0,
          .split = false};
}

// Whether the product's addresses have the alignments that the heuristic was promised.
bool aligned_as(const Algorithm& algorithm, const Product& product) {
  const Description& description = product.description;
  const bool with_bias = has_bias(description) || has_gradient(description);
  return aligned(product.a, algorithm.align_a) && aligned(product.b, algorithm.align_b) &&
         (product.beta == 0 || aligned(product.c, algorithm.align_c)) &&
         aligned(product.d, algorithm.align_d) &&
         (!with_bias || aligned(description.bias, algorithm.align_bias)) &&
         (!has_auxiliary(description) || aligned(description.auxiliary, algorithm.align_auxiliary));
}

// The time that the product takes, or nothing if this algorithm or a test refuses it.
std::optional<std::chrono::microseconds> entered(const Description& description, int id) {
  const std::lock_guard lock(record().mutex);
  const emulation::ProductBehavior& behavior = record().behaviors[description.epilogue];
  emulation::ProductCounts& counts = record().counts[description.epilogue];
  const auto at = static_cast<std::size_t>(id);
  if (id == broken_algorithm || behavior.refusal == emulation::ProductRefusal::by_product) {
    ++counts.failed[at];
    return std::nullopt;
  }
  ++counts.done[at];
  counts.in_tf32 += description.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  return behavior.delay[at];
}

// Stores a value that must have exactly the attribute's size.
template <class T>
cublasStatus_t store(T& to, const void* value, std::size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t destroy(T* object) {
  delete object;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "not initialized";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an invalid value";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the execution failed";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "not supported";
  }
  return "?";
}

std::size_t cublasLtGetVersion() {
  return 0;
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  int device = 0;
  cudaGetDevice(&device);
  *handle = new cublasLtContext{device};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return destroy(handle);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t ld) {
  *layout =
      new Layout{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy(layout);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  *description = new Description{.compute = compute, .scale = scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return destroy(description);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void* value, std::size_t bytes) {
  switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return store(description->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return store(description->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return store(description->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return store(description->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return store(description->auxiliary, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return store(description->auxiliary_ld, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void* value, std::size_t bytes) {
  switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return store(preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return store(preference->reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return store(preference->align_a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return store(preference->align_b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return store(preference->align_c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return store(preference->align_d, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* returned) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (preference == nullptr || results == nullptr || returned == nullptr || requested <= 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *returned = 0;
  if (description == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  {
    const std::lock_guard lock(record().mutex);
    ++record().counts[description->epilogue].asked;
    if (record().behaviors[description->epilogue].refusal ==
        emulation::ProductRefusal::by_heuristic) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
  }
  if (const cublasStatus_t status = examine(description, a, b, c, d);
      status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  Algorithm algorithm{
      .mark = algorithm_mark,
      .id = 0,
      .product = number_of(*description, *a, *b, *d),
      .align_a = static_cast<std::uint16_t>(preference->align_a),
      .align_b = static_cast<std::uint16_t>(preference->align_b),
      .align_c = static_cast<std::uint16_t>(preference->align_c),
      .align_d = static_cast<std::uint16_t>(preference->align_d),
      .align_bias = alignment_of(description->bias),
      .align_auxiliary = alignment_of(description->auxiliary),
      .split = (preference->reductions &
                (CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE)) != 0};
  for (int i = 0; i < emulation::product_algorithms && *returned < requested; ++i) {
    const std::size_t workspace = workspaces[static_cast<std::size_t>(i)];
    if (workspace > preference->workspace) continue;
    algorithm.id = i;
    cublasLtMatmulHeuristicResult_t& result = results[(*returned)++];
    result = {.algo = {},
              .workspaceSize = workspace,
              .state = CUBLAS_STATUS_SUCCESS,
              .wavesCount = 1,
              .reserved = {}};
    std::memcpy(&result.algo, &algorithm, sizeof algorithm);
  }
  return *returned > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (const cublasStatus_t status = examine(description, a_layout, b_layout, c_layout, d_layout);
      status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  int device = 0;
  cudaGetDevice(&device);
  // Without an algorithm the real one asks its heuristic. Our code always passes one.
  if (alpha == nullptr || beta == nullptr || a == nullptr || b == nullptr || d == nullptr ||
      algo == nullptr || handle->device != device) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  Product product = product_of(*description, *a_layout, *b_layout, *c_layout, *d_layout);
  product.a = a;
  product.b = b;
  product.c = c;
  product.d = d;
  std::memcpy(&product.alpha, alpha, sizeof product.alpha);
  std::memcpy(&product.beta, beta, sizeof product.beta);
  if (product.beta != 0 && (c == nullptr || (c == d && product.ldc != product.ldd))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  Algorithm algorithm{};
  std::memcpy(&algorithm, algo, sizeof algorithm);
  if (algorithm.mark != algorithm_mark ||
      algorithm.product != number_of(*description, *a_layout, *b_layout, *d_layout)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const std::size_t needed = workspaces[static_cast<std::size_t>(algorithm.id)];
  if (workspace_bytes < needed || (needed > 0 && workspace == nullptr) ||
      !aligned(workspace, 256)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!aligned_as(algorithm, product)) return CUBLAS_STATUS_NOT_SUPPORTED;
  product.split = algorithm.split;
  const auto delay = entered(*description, algorithm.id);
  if (!delay) return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto work = [=, input = a_layout->type, output = d_layout->type] {
    if (needed > 0) std::memset(workspace, 0xff, needed);
    if (delay->count() > 0) std::this_thread::sleep_for(*delay);
    emulation::multiply(product, input, output);
  };
  return emulation::enqueue(stream, work) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                         : CUBLAS_STATUS_EXECUTION_FAILED;
}

namespace emulation {

ProductCounts product_counts(cublasLtEpilogue_t epilogue) {
  const std::lock_guard lock(record().mutex);
  return record().counts[epilogue];
}
void reset_product_counts() {
  const std::lock_guard lock(record().mutex);
  record().counts.clear();
}
void set_product_behavior(cublasLtEpilogue_t epilogue, const ProductBehavior& behavior) {
  const std::lock_guard lock(record().mutex);
  record().behaviors[epilogue] = behavior;
}

}  // namespace emulation
