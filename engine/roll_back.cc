#include "engine/roll_back.h"

#include "kernels/elementwise.h"

namespace trident {

RollBack::RollBack(Context& context, State changed) : live_(std::move(changed)) {
  for (const StateTensor& state : live_.tensors) {
    tensors_.push_back(
        context.empty(state.tensor.shape(), state.tensor.dtype(), Category::optimizer));
  }
}

void RollBack::keep(Context& context) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    copy(context, live_.tensors[i].tensor, tensors_[i]);
  }
  numbers_.clear();
  for (const StateNumber& number : live_.numbers) {
    std::visit([&](const auto* value) { numbers_.emplace_back(*value); }, number.value);
  }
}

void RollBack::restore(Context& context) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    copy(context, tensors_[i], live_.tensors[i].tensor);
  }
  for (std::size_t i = 0; i < numbers_.size(); ++i) {
    std::visit([&]<class T>(T* value) { *value = std::get<T>(numbers_[i]); },
               live_.numbers[i].value);
  }
}

}  // namespace trident
