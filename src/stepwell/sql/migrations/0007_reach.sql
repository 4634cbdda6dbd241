-- stepwell: compatible from 6
-- Functions and views are replaced after this file.

-- They return the jobs now, and which of them have failed for good.
drop function if exists stepwell.fail_held(uuid, text, jsonb);
drop function if exists stepwell.remove_worker(uuid, text, jsonb);
