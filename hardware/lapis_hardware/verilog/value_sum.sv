// acc_c += A v_c for every channel, by shifts and additions: one shifted copy of A for each bit of the value. The
// highest bit of a signed value counts negatively: -x = ~x + 1 there, and the constant is taken off at the end.
module value_sum #(
    parameter int CHANNELS = 64,
    parameter int AFFINITY_BITS = 15,
    parameter int VALUE_BITS = 5,
    parameter int SUM_BITS = 26,
    parameter bit IS_SIGNED = 1
) (
    input  logic                           clk,
    input  logic                           start,
    input  logic                           add,
    input  logic [AFFINITY_BITS-1:0]       affinity,
    input  logic [CHANNELS*VALUE_BITS-1:0] values,
    output logic [CHANNELS*SUM_BITS-1:0]   sums
);
  localparam logic [SUM_BITS-1:0] EXTRA =
      IS_SIGNED ? ((SUM_BITS'(1) << AFFINITY_BITS) - 1'b1) << (VALUE_BITS - 1) : '0;
  for (genvar c = 0; c < CHANNELS; c++) begin : channel
    logic [SUM_BITS-1:0] total;
    logic [AFFINITY_BITS-1:0] copy;
    always_comb begin
      total = sums[c*SUM_BITS +: SUM_BITS];
      for (int j = 0; j < VALUE_BITS; j++) begin
        copy = affinity & {AFFINITY_BITS{values[c*VALUE_BITS+j]}};
        if (IS_SIGNED && j == VALUE_BITS - 1) copy = ~copy;
        total = total + (SUM_BITS'(copy) << j);
      end
    end
    always_ff @(posedge clk)
      if (start) sums[c*SUM_BITS +: SUM_BITS] <= '0;
      else if (add) sums[c*SUM_BITS +: SUM_BITS] <= total - EXTRA;
  end
endmodule
