#include "kernels/cpu/dropout.h"

#include <cstring>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/state.h"

namespace trident::cpu {

void dropout_add(const Access& access, Context& context, const DropoutAddArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const T *const x = data<T>(access, args.x), *const residual = data<T>(access, args.residual);
    T* const y = data<T>(access, args.y);
    const std::int64_t* const samples = data<std::int64_t>(access, args.dropout.samples);
    const auto& leaves = state_of(context).table->get<T>();
    const std::int64_t columns = args.x.dim(1);
    const std::int32_t* const places = data<std::int32_t>(access, args.places);
    const bool drop = args.dropout.probability > 0;
    const simd::Dropout dropout = dropout_of(args.dropout);
    context.team().parallel_for(
        args.x.dim(0), grain_rows(columns), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t t = begin; t < end; ++t) {
            const std::int64_t at = t * columns;
            if (drop) {
              const std::int64_t row = args.first_row + t;
              const std::int64_t place = places ? places[row] : row % args.sequence;
              leaves.dropout_add(dropout, static_cast<std::uint64_t>(samples[row / args.sequence]),
                                 static_cast<std::uint64_t>(place * columns), x + at,
                                 residual ? residual + at : nullptr, y + at, columns);
            } else if (residual) {
              leaves.add_bias(x + at, residual + at, y + at, columns);
            } else if (y != x) {
              std::memcpy(y + at, x + at, static_cast<std::size_t>(columns) * sizeof(T));
            }
          }
        });
  });
}

}  // namespace trident::cpu
