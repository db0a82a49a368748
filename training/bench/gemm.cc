// `trident bench gemm`.
#include <fmt/format.h>

#include <vector>

#include "kernels/backend.h"
#include "training/bench/bench.h"
#include "training/bench/measured.h"
#include "training/report/product_rate.h"

namespace trident {

namespace {
using bench::Json;
}

Json bench_gemm(const Devices& devices, int threads) {
  Context context(devices.of(0), threads, {.deterministic = false});
  Json products = Json::array();
  std::vector<DType> dtypes{DType::f32, DType::bf16};
  if (!devices.gpu().empty()) dtypes.push_back(DType::f16);
  for (const DType dtype : dtypes) {
    std::vector<ProductShape> shapes{usual_product(context, dtype)};  // what MFU is a share of
    for (const ProductShape& shape : {ProductShape{1024, 768, 3072}, ProductShape{1024, 3072, 768},
                                      ProductShape{1024, 768, 2304}, ProductShape{1024, 768, 50304},
                                      ProductShape{256, 128, 512}}) {
      if (shape != shapes.front()) shapes.push_back(shape);
    }
    for (const ProductShape& shape : shapes) {
      products.push_back({{"dtype", name_of(dtype)},
                          {"m", shape.m},
                          {"k", shape.k},
                          {"n", shape.n},
                          {"gflops", product_rate(context, dtype, shape) * 1e-9}});
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
      fmt::format("{} threads, {}\n{:>6} {:>6} {:>6} {:>6} {:>10}\n", result["threads"].get<int>(),
                  result["device"].get<std::string>(), "dtype", "m", "k", "n", "GFLOP/s");
  for (const Json& p : result["products"]) {
    text += fmt::format("{:>6} {:>6} {:>6} {:>6} {:>10.1f}\n", p["dtype"].get<std::string>(),
                        p["m"].get<int>(), p["k"].get<int>(), p["n"].get<int>(),
                        p["gflops"].get<double>());
  }
  return text;
}

}  // namespace trident
