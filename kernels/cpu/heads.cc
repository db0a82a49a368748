#include "kernels/heads.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/state.h"

namespace trident::cpu {

void copy_heads(const Access& access, Context& context, const HeadPartsArgs& args) {
  by_dtype(args.from.rows.dtype(), [&]<class T>(T*) {
    const T* const from = data<T>(access, args.from.rows) + args.from.begin;
    T* const to = data<T>(access, args.to.rows) + args.to.begin;
    const std::int64_t row_from = args.from.rows.dim(1), row_to = args.to.rows.dim(1);
    context.team().parallel_for(args.from.rows.dim(0), grain_rows(args.heads * args.dim),
                                [&](std::int64_t begin, std::int64_t end) {
                                  for (std::int64_t t = begin; t < end; ++t) {
                                    for (std::int64_t head = 0; head < args.heads; ++head) {
                                      std::copy_n(from + t * row_from + head * args.from.stride,
                                                  args.dim,
                                                  to + t * row_to + head * args.to.stride);
                                    }
                                  }
                                });
  });
}

void sum_heads(const Access& access, Context& context, const HeadPartsArgs& args) {
  by_dtype(args.from.rows.dtype(), [&]<class T>(T*) {
    const T* const from = data<T>(access, args.from.rows) + args.from.begin;
    T* const to = data<T>(access, args.to.rows) + args.to.begin;
    const std::int64_t row_from = args.from.rows.dim(1), row_to = args.to.rows.dim(1);
    const auto& leaves = state_of(context).table->get<T>();
    context.team().parallel_for(args.from.rows.dim(0), grain_rows(args.heads * args.dim),
                                [&](std::int64_t begin, std::int64_t end) {
                                  std::vector<float> sums(static_cast<std::size_t>(args.dim));
                                  for (std::int64_t t = begin; t < end; ++t) {
                                    std::fill(sums.begin(), sums.end(), 0.0f);
                                    for (std::int64_t head = 0; head < args.heads; ++head) {
                                      leaves.accumulate(
                                          from + t * row_from + head * args.from.stride,
                                          sums.data(), args.dim);
                                    }
                                    leaves.from_f32(sums.data(), to + t * row_to, args.dim);
                                  }
                                });
  });
}

}  // namespace trident::cpu
