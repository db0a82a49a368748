// `trident bench gemm`.
#include <fmt/format.h>

#include <vector>

#include "base/units.h"
#include "kernels/backend.h"
#include "kernels/cpu_library.h"
#include "report/product_rate.h"
#include "run/measurement/bench.h"
#include "run/measurement/measured.h"

namespace trident {

namespace {
using bench::Json;

// "bf16 widened"; just "bf16" where bf16 products have a single way.
std::string name_of_product(const Json& product) {
  auto name = product["dtype"].get<std::string>();
  if (product.contains("bf16_products")) name += " " + product["bf16_products"].get<std::string>();
  return name;
}

}  // namespace

Json bench_gemm(const Devices& devices, int threads) {
  Context context(devices.of(0), threads, {.deterministic = false});
  Context widening(devices.of(0), threads, {.deterministic = false, .widen_bf16 = true});
  Json products = Json::array();
  struct Way {
    DType dtype;
    const char* name;  // value of runtime.bf16_products, "" for a single way
    Context* context;
  };
  std::vector<Way> ways{{DType::f32, "", &context}};
  if (!devices.gpu().empty()) {
    ways.insert(ways.end(), {{DType::bf16, "", &context}, {DType::f16, "", &context}});
  } else if (cpu_bf16() == CpuBf16::none) {
    ways.push_back({DType::bf16, "", &context});
  } else {
    ways.insert(ways.end(),
                {{DType::bf16, "native", &context}, {DType::bf16, "widened", &widening}});
  }
  for (const Way& way : ways) {
    std::vector<ProductShape> shapes{
        usual_product(*way.context, way.dtype)};  // MFU relates to this product
    for (const ProductShape& shape : {ProductShape{1024, 768, 3072}, ProductShape{1024, 3072, 768},
                                      ProductShape{1024, 768, 2304}, ProductShape{1024, 768, 50304},
                                      ProductShape{256, 128, 512}}) {
      if (shape != shapes.front()) shapes.push_back(shape);
    }
    for (const ProductShape& shape : shapes) {
      products.push_back({{"dtype", name_of(way.dtype)},
                          {"m", shape.m},
                          {"k", shape.k},
                          {"n", shape.n},
                          {"gflops", product_rate(*way.context, way.dtype, shape) * 1e-9}});
      if (*way.name != 0) products.back()["bf16_products"] = way.name;
    }
  }
  return {{"threads", threads},
          {"device", devices.text()},
          {"versions", bench::versions_json(devices)},
          {"instructions", backend_of(context).instructions()},
          {"products", products}};
}

std::string bench_gemm_text(const Json& result) {
  std::string text =
      fmt::format("{}, {}\n{:>12} {:>6} {:>6} {:>6} {:>10}\n", counted(result["threads"], "thread"),
                  result["device"].get<std::string>(), "dtype", "m", "k", "n", "GFLOP/s");
  for (const Json& p : result["products"]) {
    text +=
        fmt::format("{:>12} {:>6} {:>6} {:>6} {:>10.1f}\n", name_of_product(p), p["m"].get<int>(),
                    p["k"].get<int>(), p["n"].get<int>(), p["gflops"].get<double>());
  }
  return text;
}

}  // namespace trident
