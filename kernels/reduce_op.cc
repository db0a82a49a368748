#include "kernels/reduce_op.h"

namespace trident {

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::product:
      return "product";
    case ReduceOp::minimum:
      return "minimum";
    case ReduceOp::maximum:
      return "maximum";
    case ReduceOp::average:
      return "average";
    case ReduceOp::bit_and:
      return "bit_and";
    case ReduceOp::bit_or:
      return "bit_or";
    case ReduceOp::bit_xor:
      return "bit_xor";
  }
  return "unknown";
}

}  // namespace trident
