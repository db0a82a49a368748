#include "parallel/process_group_checks.h"

#include <fmt/format.h>

#include "base/error.h"
#include "kernels/reduce.h"

namespace trident {

std::string place(const GroupHandle& group, const char* operation) {
  return fmt::format("{} on group '{}' (ranks {})", operation, group->membership.name,
                     rank_list(group->membership.members));
}

void need(const GroupHandle& group, const char* operation) {
  if (group == nullptr) throw RequestError(fmt::format("{}: undefined process group", operation));
}

void need(const GroupHandle& group, const char* operation, const char* argument,
          const Tensor& tensor) {
  need(group, operation);
  if (!tensor.defined()) {
    throw RequestError(fmt::format("{}: {} is undefined", place(group, operation), argument));
  }
}

void need_parts(const GroupHandle& group, const char* operation, const char* full_name,
                const Tensor& full, const char* part_name, const Tensor& part) {
  need(group, operation, full_name, full);
  need(group, operation, part_name, part);
  const auto size = static_cast<std::int64_t>(group->membership.members.size());
  if (full.dtype() != part.dtype() || full.numel() != part.numel() * size) {
    throw RequestError(fmt::format(
        "{}: {} is {}[{}]; {} is {}[{}] and needs {}[{}] there, a part for each rank",
        place(group, operation), full_name, name_of(full.dtype()), full.numel(), part_name,
        name_of(part.dtype()), part.numel(), name_of(part.dtype()), part.numel() * size));
  }
}

void need_member(const GroupHandle& group, const char* operation, const char* argument, int rank) {
  need(group, operation);
  const int size = static_cast<int>(group->membership.members.size());
  if (rank < 0 || rank >= size) {
    throw RequestError(fmt::format("{}: {} {} is not a rank of the group, 0 to {}",
                                   place(group, operation), argument, rank, size - 1));
  }
}

void need_reach(const GroupHandle& group, const char* operation, Context& context) {
  if (context.device().kind() == DeviceKind::cuda && group->membership.library == nullptr &&
      !group->membership.endpoint->reaches_gpus()) {
    throw RequestError(
        fmt::format("{}: this transport carries no tensors of a GPU", place(group, operation)));
  }
}

void need_support(const GroupHandle& group, const char* operation, ReduceOp op, DType dtype) {
  if (!supports(op, dtype)) {
    throw RequestError(fmt::format("{}: {} is for integers, the tensor is {}",
                                   place(group, operation), name_of(op), name_of(dtype)));
  }
}

}  // namespace trident
