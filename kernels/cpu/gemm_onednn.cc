// Matrix products by oneDNN 2.x. This is the only file that uses oneDNN.
#include <fmt/format.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "base/error.h"
#include "base/fnv1a.h"
#include "kernels/cpu/product_cache.h"
#include "kernels/cpu_library.h"

namespace trident::cpu {
namespace {

struct ProductHash {
  std::size_t operator()(const Product& p) const {
    return fnv1a(std::initializer_list<std::int64_t>{
        p.m, p.n, p.k, p.a_row, p.b_row, p.c_row,
        std::int64_t{p.transpose_a} | std::int64_t{p.transpose_b} << 1 |
            std::int64_t{p.accumulate} << 2 | std::int64_t{p.bias} << 3 |
            static_cast<std::int64_t>(p.input) << 4 | static_cast<std::int64_t>(p.output) << 8});
  }
};

bool includes(dnnl_cpu_isa_t isa, dnnl_cpu_isa_t part) {
  return (isa & part) == part;  // isa has a bit for each extension
}

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

// Measured on AVX-512 machines. oneDNN's fp32 primitives take a transposed right operand at full
// speed. They read a plain right operand in place, up to three times slower than dnnl_sgemm, which
// packs it (in memory of its own). dnnl_sgemm is also faster for a transposed left operand. The
// primitive wins if the right operand fits in the level 2 cache.
bool better_by_sgemm(const Product& p) {
  constexpr std::int64_t cached = 128 * 1024;  // floats
  return p.input == DType::f32 && p.output == DType::f32 && !p.bias &&
         (p.transpose_a || (!p.transpose_b && p.k * p.n > cached));
}

void run_sgemm(const Product& p, const ProductOperands& operands) {
  const dnnl_status_t status = dnnl_sgemm(
      p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.m, p.n, p.k, 1.0f,
      static_cast<const float*>(operands.a), p.a_row, static_cast<const float*>(operands.b),
      p.b_row, p.accumulate ? 1.0f : 0.0f, static_cast<float*>(operands.c), p.c_row);
  if (status != dnnl_success) throw dnnl::error(status, "dnnl_sgemm");
}

// A primitive, and the memory objects that receive the addresses of its operands.
struct Prepared {
  dnnl::matmul primitive;
  dnnl::memory a, b, c, bias, scratchpad;
};

}  // namespace

ProductInstructions product_instructions() {
  const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
  return {.isa = includes(isa, dnnl_cpu_isa_avx512_core) ? simd::Isa::avx512
                 : includes(isa, dnnl_cpu_isa_avx2)      ? simd::Isa::avx2
                                                         : simd::Isa::sse2,
          .bf16 = includes(isa, dnnl_cpu_isa_avx512_core_bf16),
          .amx = includes(isa, dnnl_cpu_isa_avx512_core_amx)};
}

}  // namespace trident::cpu

namespace trident {

CpuBf16 cpu_bf16() {
  const cpu::ProductInstructions found = cpu::product_instructions();
  return !found.bf16 ? CpuBf16::none : found.amx ? CpuBf16::tiles : CpuBf16::vectors;
}

std::string cpu_product_library() {
  const dnnl_version_t* const version = dnnl_version();
  dnnl_fpmath_mode_t mode{};
  dnnl_get_default_fpmath_mode(&mode);
  return fmt::format("oneDNN {}.{}.{} ({}), instructions {:#x}, fpmath mode {}", version->major,
                     version->minor, version->patch, version->hash,
                     static_cast<unsigned>(dnnl_get_effective_cpu_isa()), static_cast<int>(mode));
}

}  // namespace trident

namespace trident::cpu {

struct ProductCache::Impl {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::unordered_map<Product, Prepared, ProductHash> prepared;
  std::unordered_map<Product, std::int64_t, ProductHash> reserved;  // bytes
  Tensor scratch;  // as large as the largest scratchpad so far

  void hold_scratch(Context& context, std::int64_t bytes) {
    if (bytes == 0 || (scratch && scratch.bytes() >= bytes)) return;
    scratch = Tensor();  // free the old block first
    scratch = context.empty({bytes}, DType::u8, Category::workspace);
  }

  struct Described {
    dnnl::memory::desc a, b, c, bias;
    dnnl::matmul::primitive_desc primitive;
  };
  Described describe(const Product& p) const {
    using dnnl::memory;
    const auto matrix = [](std::int64_t rows, std::int64_t columns, std::int64_t row,
                           bool transposed, DType dtype) {
      return memory::desc({rows, columns}, type_of(dtype),
                          transposed ? memory::dims{1, row} : memory::dims{row, 1});
    };
    const memory::desc a = matrix(p.m, p.k, p.a_row, p.transpose_a, p.input);
    const memory::desc b = matrix(p.k, p.n, p.b_row, p.transpose_b, p.input);
    const memory::desc c = matrix(p.m, p.n, p.c_row, false, p.output);
    const memory::desc bias({1, p.n}, type_of(p.input), memory::format_tag::ab);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (p.accumulate) {
      dnnl::post_ops ops;
      ops.append_sum(1.0f);
      attributes.set_post_ops(ops);
    }
    return {a, b, c, bias,
            dnnl::matmul::primitive_desc(
                p.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c),
                attributes, engine)};
  }
  Prepared make(const Product& p) const {
    const auto on = [&](const dnnl::memory::desc& d) { return dnnl::memory(d, engine, nullptr); };
    const Described d = describe(p);
    return {dnnl::matmul(d.primitive),        on(d.a), on(d.b), on(d.c), on(d.bias),
            on(d.primitive.scratchpad_desc())};
  }
};

ProductCache::ProductCache() : impl_(std::make_unique<Impl>()) {}
ProductCache::~ProductCache() = default;

void ProductCache::reserve(Context& context, const Product& product) {
  context.team().prepare_library();  // sets the thread count, which scratchpads depend on
  if (better_by_sgemm(product)) return;
  auto found = impl_->reserved.find(product);
  if (found == impl_->reserved.end()) {
    const auto bytes = impl_->describe(product).primitive.scratchpad_desc().get_size();
    found = impl_->reserved.emplace(product, static_cast<std::int64_t>(bytes)).first;
  }
  impl_->hold_scratch(context, found->second);
}

void ProductCache::run(const Access& access, Context& context, const Product& product,
                       const ProductOperands& operands) {
  context.team().prepare_library();
  try {
    if (better_by_sgemm(product)) return run_sgemm(product, operands);
    auto found = impl_->prepared.find(product);
    if (found == impl_->prepared.end()) {
      found = impl_->prepared.emplace(product, impl_->make(product)).first;
    }
    Prepared& p = found->second;
    const auto bytes = static_cast<std::int64_t>(p.scratchpad.get_desc().get_size());
    impl_->hold_scratch(context, bytes);
    p.a.set_data_handle(const_cast<void*>(operands.a));
    p.b.set_data_handle(const_cast<void*>(operands.b));
    p.c.set_data_handle(operands.c);
    if (bytes > 0) p.scratchpad.set_data_handle(TensorAddress::of(access, impl_->scratch));
    std::unordered_map<int, dnnl::memory> arguments = {{DNNL_ARG_SRC, p.a},
                                                       {DNNL_ARG_WEIGHTS, p.b},
                                                       {DNNL_ARG_DST, p.c},
                                                       {DNNL_ARG_SCRATCHPAD, p.scratchpad}};
    if (product.bias) {
      p.bias.set_data_handle(const_cast<void*>(operands.bias));
      arguments.emplace(DNNL_ARG_BIAS, p.bias);
    }
    p.primitive.execute(impl_->stream, arguments);
    impl_->stream.wait();
  } catch (const dnnl::error& error) {
    throw Error("gemm: oneDNN failed on " + std::to_string(product.m) + "x" +
                std::to_string(product.k) + "x" + std::to_string(product.n) + ": " + error.what());
  }
}

}  // namespace trident::cpu
