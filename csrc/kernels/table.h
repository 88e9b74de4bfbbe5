/* The kernels of one instruction set, from the names that they have in every one. */
const kernel_functions KERNELS_TABLE = {
    .distance_scratch = distance_scratch,
    .distance = distance,
    .gradient_scratch = gradient_scratch,
    .gradient = gradient,
    .attention_scratch = attention_scratch,
    .attention = attention,
    .integer_attention_scratch = integer_attention_scratch,
    .integer_attention = integer_attention,
    .lsq = lsq,
    .lsq_value_backward = lsq_value_backward,
    .lsq_codes_backward = lsq_codes_backward,
};
