-- The functions of durable steps, mended: they are replaced whole after this.

comment on column stepwell.history.failed_step is 'The step at which the job failed, whether anything was saved of it or not; a retry takes that one anew.';
