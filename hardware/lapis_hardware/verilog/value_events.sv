// acc_c = sum_j A_j v_jc by events: a spike of value neuron c adds A to its current (an OFF spike takes it), and at the
// end of every step the current is added to the membrane. A spike at step n so counts T - n times.
module value_events #(
    parameter int CHANNELS = 64,
    parameter int AFFINITY_BITS = 15,
    parameter int SUM_BITS = 26
) (
    input  logic                         clk,
    input  logic                         start,
    input  logic                         tick,         // the end of a step
    input  logic [AFFINITY_BITS-1:0]     affinity,
    input  logic [CHANNELS-1:0]          spikes_on,
    input  logic [CHANNELS-1:0]          spikes_off,
    output logic [CHANNELS*SUM_BITS-1:0] sums
);
  for (genvar c = 0; c < CHANNELS; c++) begin : channel
    logic [SUM_BITS-1:0] current;
    always_ff @(posedge clk)
      if (start) begin
        current <= '0;
        sums[c*SUM_BITS +: SUM_BITS] <= '0;
      end else if (tick) sums[c*SUM_BITS +: SUM_BITS] <= sums[c*SUM_BITS +: SUM_BITS] + current;
      else if (spikes_on[c] || spikes_off[c])
        current <= current + (SUM_BITS'(affinity) ^ {SUM_BITS{spikes_off[c]}}) + SUM_BITS'(spikes_off[c]);
  end
endmodule
