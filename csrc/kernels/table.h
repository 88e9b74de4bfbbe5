/* One row of the table of instruction sets, from the names that the kernels have in every one of them. */
const lapis_isa LAPIS_TABLE = {
    LAPIS_NAME,
    supported,
    distance_scratch,
    distance,
    gradient_scratch,
    gradient,
    attention_scratch,
    attention,
    integer_attention_scratch,
    integer_attention,
    lsq,
    lsq_value_backward,
    lsq_codes_backward,
};
